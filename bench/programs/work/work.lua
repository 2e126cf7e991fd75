-- n-body, binary trees, strings and tables: work.lua SCALE
local scale = tonumber(arg[1])

local function bodies(steps)
  local b = {}
  for i = 1, 5 do b[i] = {x = i * 1.3, y = i * 0.7, z = i * 0.1, vx = 0, vy = 0, vz = 0, m = 1 / i} end
  for _ = 1, steps do
    for i = 1, 5 do
      local p = b[i]
      for j = i + 1, 5 do
        local q = b[j]
        local dx, dy, dz = p.x - q.x, p.y - q.y, p.z - q.z
        local d = dx * dx + dy * dy + dz * dz + 0.01
        local f = 0.001 / (d * math.sqrt(d))
        p.vx, p.vy, p.vz = p.vx - dx * q.m * f, p.vy - dy * q.m * f, p.vz - dz * q.m * f
        q.vx, q.vy, q.vz = q.vx + dx * p.m * f, q.vy + dy * p.m * f, q.vz + dz * p.m * f
      end
    end
    for i = 1, 5 do
      local p = b[i]
      p.x, p.y, p.z = p.x + 0.001 * p.vx, p.y + 0.001 * p.vy, p.z + 0.001 * p.vz
    end
  end
  return b[1].x
end

local function tree(depth)
  if depth == 0 then return {} end
  return {tree(depth - 1), tree(depth - 1)}
end

local function count(t)
  return t[1] and 1 + count(t[1]) + count(t[2]) or 1
end

local function words(n)
  local seen, order = {}, {}
  for i = 1, n do
    local w = "w" .. (i * 7919) % 1009
    if not seen[w] then seen[w] = 0; order[#order + 1] = w end
    seen[w] = seen[w] + #w
  end
  table.sort(order)
  local text = table.concat(order, " ")
  return select(2, text:gsub("w1", "v")), #text:upper(), text:find("w1008", 1, true)
end

print(string.format("%.9f", bodies(600 * scale)))
for _ = 1, scale do print(count(tree(10))) end
print(words(3000 * scale))
