-- LuaJIT: the library is unloaded under a live communicator and loaded again. See unload_test.py.
local ffi = require("ffi")

local file = assert(io.open(os.getenv("SYMM_DECLARATIONS")))
ffi.cdef(file:read("*a"))
file:close()

local address, rank, size = arg[1], tonumber(arg[2]), tonumber(arg[3])
local comm = ffi.new("symm_comm *[1]")
local value, sum = ffi.new("float[1]", rank), ffi.new("float[1]")

local function check(symm, status)
  if status ~= 0 then error(ffi.string(symm.symm_last_error())) end
end

local function one_turn(turn)
  local symm = ffi.load(os.getenv("SYMM_LIBRARY"))
  if turn == 1 then
    check(symm, symm.symm_comm_create(address, rank, size, symm.SYMM_CPU, nil, comm))
  end
  check(symm, symm.symm_all_reduce(comm[0], value, sum, 1, symm.SYMM_FLOAT32, symm.SYMM_SUM, nil))
  assert(sum[0] == size * (size - 1) / 2)
end

for turn = 1, 3 do
  one_turn(turn)
  -- The library object is gone after the function: collecting it is what unloads.
  collectgarbage()
  collectgarbage()
end
-- Ends with a live communicator and no library.
