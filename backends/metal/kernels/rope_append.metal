// Queries turned, keys turned and values as they come, both in the cache's type T and order: a thread takes a pair of values of one
// head, of queries, keys or values, which lie one after the other in the grid.
uint pair = thread_position_in_grid.x, head = thread_position_in_grid.y, token = thread_position_in_grid.z;
uint kind = head < HEADS ? 0 : head < HEADS + KV_HEADS ? 1 : 2, heads = kind == 0 ? HEADS : KV_HEADS;
uint own = kind == 0 ? head : kind == 1 ? head - HEADS : head - HEADS - KV_HEADS;
bool turns = kind < 2 && pair < ROTARY / 2;
uint one = NEOX && turns ? pair : 2 * pair, two = NEOX && turns ? pair + ROTARY / 2 : 2 * pair + 1;
uint at = (token * heads + own) * WIDTH;
float first, second;
// Not by ?:, which two arrays may be too different for: one may lie in another address space.
if (kind == 0) {
  first = q[at + one];
  second = q[at + two];
} else if (kind == 1) {
  first = k[at + one];
  second = k[at + two];
} else {
  first = v[at + one];
  second = v[at + two];
}
if (turns) {
  float cosine = cosines[token * (ROTARY / 2) + pair], sine = sines[token * (ROTARY / 2) + pair], turned = first * cosine - second * sine;
  second = first * sine + second * cosine;
  first = turned;
}
if (kind == 0) {
  y[at + one] = first;
  y[at + two] = second;
} else if (kind == 1) {
  new_keys[at + one] = T(first);
  new_keys[at + two] = T(second);
} else {
  new_values[at + one] = T(first);
  new_values[at + two] = T(second);
}
