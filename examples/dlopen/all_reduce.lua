-- One rank of an all-reduce, by LuaJIT's ffi.
--
--   gcc -E -P symm.h > symm.ffi
--   SYMM_DECLARATIONS=symm.ffi luajit all_reduce.lua tcp://127.0.0.1:29500 0 2 &
--   SYMM_DECLARATIONS=symm.ffi luajit all_reduce.lua tcp://127.0.0.1:29500 1 2
--
-- SYMM_LIBRARY: which library to load ("libsymm.so.0"). SYMM_DECLARATIONS: the header of that
-- library, preprocessed ("symm.ffi"): ffi.cdef reads C, but no '#' lines. Nothing is copied by
-- hand.
local ffi = require("ffi")
local bit = require("bit")

local count = 1000

-- error() with level 0 adds no place in the source: the message is for the program's user.
local function read(path)
  local file, problem = io.open(path)
  if not file then error(problem, 0) end
  local text = file:read("*a")
  file:close()
  return text
end

local symm  -- the library: its functions, and the header's enum constants

local function check(status)
  -- A Lua state stays on one thread of the system: the last error is that of the call just made.
  -- The status is an int here, so `symm.SYMM_OK` compares as a number.
  if status ~= symm.SYMM_OK then
    local name = ffi.string(symm.symm_status_name(status))
    error(name .. ": " .. ffi.string(symm.symm_last_error()), 0)
  end
end

local function number(text)
  -- More digits than these would be cut to 32 bits by the call.
  if not text:match("^%-?%d%d?%d?%d?%d?%d?%d?%d?%d?$") then
    error("all_reduce: '" .. text .. "' is not a rank or a size", 0)
  end
  return tonumber(text)
end

local function fnv1a(data, bytes)
  local byte = ffi.cast("const uint8_t *", data)
  local digest = 14695981039346656037ULL  -- 64-bit numbers need the suffix; plain ones are doubles
  for i = 0, bytes - 1 do
    digest = bit.bxor(digest, byte[i]) * 1099511628211ULL
  end
  return digest
end

local function main(arguments)
  if #arguments ~= 3 then error("usage: all_reduce.lua ADDRESS RANK SIZE", 0) end
  local address, rank, size = arguments[1], number(arguments[2]), number(arguments[3])

  ffi.cdef(read(os.getenv("SYMM_DECLARATIONS") or "symm.ffi"))
  -- The library is unloaded when the last reference to this is collected: keep it in a variable.
  symm = ffi.load(os.getenv("SYMM_LIBRARY") or "libsymm.so.0")

  local options = ffi.new("symm_comm_options", { timeout_ms = 60000 })  -- the rest is zero
  options.size = ffi.sizeof("symm_comm_options")
  local comm_out = ffi.new("symm_comm *[1]")
  check(symm.symm_comm_create(address, rank, size, symm.SYMM_CPU, options, comm_out))
  local comm = comm_out[0]

  local x = ffi.new("float[?]", count)
  local sum = ffi.new("float[?]", count)
  local bytes = ffi.sizeof(x)
  for i = 0, count - 1 do
    x[i] = 1 / (1 + i + 1000 * rank)
  end
  check(symm.symm_all_reduce(comm, x, sum, count, symm.SYMM_FLOAT32, symm.SYMM_SUM, nil))

  -- The same from a window, memory that every rank sees: no copy on the way in.
  local window_out = ffi.new("symm_window *[1]")
  local own = ffi.new("void *[1]")
  local again = ffi.new("float[?]", count)
  check(symm.symm_window_alloc(comm, bytes, nil, window_out))
  local window = window_out[0]
  check(symm.symm_window_data(window, rank, own))
  ffi.copy(own[0], x, bytes)
  check(symm.symm_window_all_reduce(window, 0, again, count, symm.SYMM_FLOAT32, symm.SYMM_SUM, nil))
  if ffi.string(sum, bytes) ~= ffi.string(again, bytes) then
    error("all_reduce: the window's sum has other bits", 0)
  end

  print(("rank %d of %d: sum[0] = %.6f, digest %s"):format(rank, size, sum[0],
    bit.tohex(fnv1a(sum, bytes))))
  symm.symm_window_free(window)
  symm.symm_comm_free(comm)
end

local done, problem = pcall(main, arg)
if not done then
  io.stderr:write(tostring(problem), "\n")
  os.exit(1)
end
