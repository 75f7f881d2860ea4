# Prints what all_reduce.rb repeats of symm.h, as JSON. See facts_test.py.
require "json"
require ARGV.fetch(0)

options = Symm::CommOptions
sizes = options.types.map { |type| Fiddle::PackInfo::SIZE_MAP.fetch(type) }
offsets = options.malloc(Fiddle::RUBY_FREE).to_ptr.instance_variable_get(:@offset)
puts JSON.generate(
  constants: Symm.constants.grep(/\ASYMM_/).to_h { |name| [name, Symm.const_get(name)] },
  structs: {
    symm_comm_options: {
      size: options.size, fields: options.members.zip(offsets.zip(sizes)).to_h,
    },
  }
)
