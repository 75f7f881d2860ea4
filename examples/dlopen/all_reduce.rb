#!/usr/bin/env ruby
# One rank of an all-reduce, by Ruby's own fiddle.
#
#   ruby all_reduce.rb tcp://127.0.0.1:29500 0 2 & ruby all_reduce.rb tcp://127.0.0.1:29500 1 2
#
# SYMM_LIBRARY: which library to load ("libsymm.so.0").
require "fiddle/import"

# From symm.h; fiddle reads declarations, but no header and no enums.
module Symm
  extend Fiddle::Importer
  begin
    dlload ENV.fetch("SYMM_LIBRARY", "libsymm.so.0")
  rescue Fiddle::DLError => e
    abort e.message
  end

  SYMM_OK = 0
  SYMM_CPU = -1
  SYMM_FLOAT32 = 7
  SYMM_SUM = 0

  CommOptions = struct [
    "size_t size",
    "char *name",
    "char *nccl_path",
    "char *error",
    "size_t error_size",
    "size_t scratch_bytes",
    "int timeout_ms",
    "int wait_timeout_ms",
    "unsigned int flags",
    "unsigned int reserved",
  ]

  # Handles, buffers and outputs are all void *. Fiddle gives up the interpreter's lock during a
  # call, so other Ruby threads run while a rank waits.
  extern "char *symm_status_name(int)"
  extern "char *symm_last_error()"
  extern "int symm_comm_create(char *, int, int, int, void *, void *)"
  extern "void symm_comm_free(void *)"
  extern "int symm_window_alloc(void *, size_t, void *, void *)"
  extern "int symm_window_data(void *, int, void *)"
  extern "void symm_window_free(void *)"
  extern "int symm_all_reduce(void *, void *, void *, size_t, int, int, void *)"
  extern "int symm_window_all_reduce(void *, size_t, void *, size_t, int, int, void *)"

  class Error < StandardError; end

  # A Ruby thread keeps its thread of the system (but under RUBY_MN_THREADS=1), so the last error is
  # that of the call just made.
  def self.check(status)
    return if status == SYMM_OK

    raise Error, "#{symm_status_name(status)}: #{symm_last_error}"
  end

  # Calls the block with room for a pointer, and returns the pointer that it was filled with.
  def self.output
    Fiddle::Pointer.malloc(Fiddle::SIZEOF_VOIDP, Fiddle::RUBY_FREE) do |room|
      check(yield(room))
      return room.ptr
    end
  end
end

COUNT = 1000
BYTES = COUNT * Fiddle::SIZEOF_FLOAT

def number(text)
  # Fiddle would quietly keep the low 32 bits of anything larger.
  raise Symm::Error, "all_reduce: '#{text}' is not a rank or a size" unless text =~ /\A-?\d{1,9}\z/

  text.to_i
end

def fnv1a(bytes)
  bytes.each_byte.reduce(14695981039346656037) do |digest, byte|
    ((digest ^ byte) * 1099511628211) & 0xffffffffffffffff
  end
end

def main(address, rank, size)
  comm = Symm::CommOptions.malloc(Fiddle::RUBY_FREE) do |options|
    options.to_ptr[0, Symm::CommOptions.size] = "\0" * Symm::CommOptions.size
    options.size = Symm::CommOptions.size
    options.timeout_ms = 60000
    Symm.output { |out| Symm.symm_comm_create(address, rank, size, Symm::SYMM_CPU, options, out) }
  end

  # A packed string is memory that C can read; one that C writes must be as long beforehand, and
  # must be shared with no other string.
  x = Array.new(COUNT) { |i| 1.0 / (1 + i + 1000 * rank) }.pack("f*")
  sum = "\0" * BYTES
  Symm.check(Symm.symm_all_reduce(comm, x, sum, COUNT, Symm::SYMM_FLOAT32, Symm::SYMM_SUM, nil))

  # The same from a window, memory that every rank sees: no copy on the way in.
  window = Symm.output { |out| Symm.symm_window_alloc(comm, BYTES, nil, out) }
  own = Symm.output { |out| Symm.symm_window_data(window, rank, out) }
  own[0, BYTES] = x
  again = "\0" * BYTES
  Symm.check(Symm.symm_window_all_reduce(window, 0, again, COUNT, Symm::SYMM_FLOAT32,
                                         Symm::SYMM_SUM, nil))
  raise Symm::Error, "all_reduce: the window's sum has other bits" if sum != again

  puts format("rank %d of %d: sum[0] = %.6f, digest %016x", rank, size, sum.unpack1("f"),
              fnv1a(sum))
  Symm.symm_window_free(window)
  Symm.symm_comm_free(comm)
end

if __FILE__ == $PROGRAM_NAME
  begin
    raise Symm::Error, "usage: all_reduce.rb ADDRESS RANK SIZE" unless ARGV.size == 3

    main(ARGV[0], number(ARGV[1]), number(ARGV[2]))
  rescue Symm::Error => e
    abort e.message
  end
end
