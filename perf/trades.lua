-- What wrk sends: the trades of the load generator in perf/trade.rs, byte for byte.
--
--   wrk -t2 -c64 -d5s --latency -s perf/trades.lua http://HOST:PORT -- KEYS MARKET OUTCOME RUN
--
-- KEYS is a file with an API key in each line. RUN differs from run to run, so that no idempotency
-- key comes twice. BUY 1 and SELL 1 come in turn for each key; a sale may overtake its purchase on
-- another connection, so every account must hold some shares before.

local thread_count = 0

function setup(thread)
  thread:set("number", thread_count)
  thread_count = thread_count + 1
end

function init(arguments)
  local keys_file, market, outcome, run = unpack(arguments)
  keys = {}
  for key in io.lines(keys_file) do
    keys[#keys + 1] = key
  end
  heads, tails = {}, {}
  for index, key in ipairs(keys) do
    heads[index] = "POST /trade HTTP/1.1\r\nHost: " .. wrk.headers["Host"] ..
      "\r\nAccept: application/json\r\nX-API-Key: " .. key .. "\r\nIdempotency-Key: "
  end
  for index, side in ipairs({ "BUY", "SELL" }) do
    local body = string.format(
      '{"market_id":"%s","outcome":"%s","quantity":1,"side":"%s"}', market, outcome, side)
    tails[index] = "\r\nContent-Type: application/json\r\nContent-Length: " .. #body ..
      "\r\n\r\n" .. body
  end
  -- The run and the thread; the request's number follows in bits of its own.
  prefix = string.format("%08x%08x", tonumber(run), number)
  count = 0
end

function request()
  local head = heads[math.floor(count / 2 + number) % #keys + 1]
  local tail = tails[count % 2 + 1]
  count = count + 1
  return head .. prefix .. string.format("%016x", count) .. tail
end

-- One line for a program to read; latencies in microseconds.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    "measured requests=%d duration_us=%d status_errors=%d socket_errors=%d",
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
  for _, percent in ipairs({ 50, 90, 99, 99.9, 99.99, 100 }) do
    local value = percent == 100 and latency.max or latency:percentile(percent)
    io.write(string.format(" p%g=%d", percent, value))
  end
  io.write("\n")
end
