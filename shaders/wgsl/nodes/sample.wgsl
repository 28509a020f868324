// A token drawn from the last row of each pass: of the logits that a mask leaves, over a temperature, narrowed in up to four
// stages (top-k, top-p, min-p) to those that a draw may take. A workgroup takes a row.
//
// Only the first digit of the first stage looks at the whole row. What can still be drawn then goes to a list, key and
// index, and everything else, the noise too, is done for the list alone.
// constants: LOCAL COPIES MASK TEMPERED STAGE_1 STAGE_2 STAGE_3 STAGE_4 ALIGNED
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    pass_rows: u32,
    rows_start: u32,
    positions_start: u32,
    draw_keys_start: u32,
    draw: u32,
    one: f32, // what a weight of 1 counts
    mask_start: u32,
    // Where an argument begins in the inputs, a word for each pass; or NOWHERE, and what it is.
    temperature_start: u32,
    temperature: u32,
#for n in (1, 2, 3, 4)
    stage_${n}_start: u32,
    stage_${n}: u32,
#end
    zero: u32,
}
#include rows
#include keys
#include exp
#include bins
#include histogram
#include masses
#include random
#include agreed

const TOP_K = 1u;
const TOP_P = 2u;
const MIN_P = 3u;
const NOWHERE = 0xFFFFFFFFu;

var<workgroup> best_key: atomic<u32>;
var<workgroup> best_place: atomic<u32>;
var<workgroup> listed: atomic<u32>;

fn argument_of(start: u32, value: u32, number: u32) -> u32 {
    if (start == NOWHERE) { return value; }
    return inputs[start + number];
}

struct Row {
    logits: u32, // where they begin
    mask: u32,
    temperature: f32,
    list: u32, // where its keys begin; `extent` words later, its indices
}

// The keys of entries `at` … `at` + 3; 0, which no number has, past the row's end.
fn keys_at(row: Row, at: u32) -> vec4<u32> {
#if ALIGNED
    var x = logits[(row.logits + at) >> 2u];
#else
    var x = vec4<f32>(0.0);
#for j in 4
    x[${j}] = logits[row.logits + min(at + ${j}u, p.extent - 1u)];
#end
#end
    var keys = vec4<u32>(0u);
#if MASK
    let bits = inputs[row.mask + (at >> 5u)] >> (at & 31u);
    let nothing = float_of(0xFF800000u);
#end
#for j in 4
    {
        var value = x[${j}];
#if MASK == 1
        value = select(nothing, value, ((bits >> ${j}u) & 1u) != 0u);
#end
#if TEMPERED
        value = exact(value / row.temperature);
#end
#if MASK == 2
        value = select(nothing, value, ((bits >> ${j}u) & 1u) != 0u);
#end
        let key = key_of(bitcast<u32>(value), F32_);
#if ALIGNED
        keys[${j}] = key;
#else
        keys[${j}] = select(0u, key, at + ${j}u < p.extent);
#end
    }
#end
    return keys;
}

fn number(key: u32) -> f32 { return bitcast<f32>(word_of(key)); }

// The largest key of all invocations.
fn workgroup_max(key: u32) -> u32 {
    workgroupBarrier();
    if (lane == 0u) { atomicStore(&best_key, 0u); }
    workgroupBarrier();
    atomicMax(&best_key, key);
    workgroupBarrier();
    return atomicLoad(&best_key);
}

// The least of all invocations.
fn workgroup_min(place: u32) -> u32 {
    workgroupBarrier();
    if (lane == 0u) { atomicStore(&best_place, 0xFFFFFFFFu); }
    workgroupBarrier();
    atomicMin(&best_place, place);
    workgroupBarrier();
    return atomicLoad(&best_place);
}

fn clear(stage: u32) {
    if (stage == TOP_K) { clear_bins(); } else { clear_masses(); }
}

fn count_key(stage: u32, key: u32, best: u32, shift: u32) {
    let place = bin_place((key >> (shift - 8u)) & 0xFFu);
    if (stage == TOP_K) {
        atomicAdd(&bins[place], 1u);
    } else {
        add_mass(place, exp_below(number(key) - number(best)), p.one);
    }
}

fn find_digit(stage: u32, shift: u32, share: f32, wanted: ptr<function, u32>, mass: ptr<function, Mass>) -> u32 {
    if (stage == TOP_K) { return find_bin(wanted) << (shift - 8u); }
    sum_blocks();
    if (shift == 32u) { *mass = share_of(total_mass(), share); }
    return find_mass(mass) << (shift - 8u);
}

// The keys from `least` on, and where they are, into the list; gives how many there are.
fn make_list(row: Row, least: u32) -> u32 {
    workgroupBarrier();
    if (lane == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var at = 4u * lane; at < p.extent; at += ${4 * LOCAL}u) {
        let keys = keys_at(row, at);
#for j in 4
        if (keys[${j}] >= max(least, 1u)) {
            let place = row.list + atomicAdd(&listed, 1u);
            arena[place] = keys[${j}];
            arena[place + p.extent] = at + ${j}u;
        }
#end
    }
    // Others will read what this one wrote.
    storageBarrier();
    workgroupBarrier();
    return atomicLoad(&listed);
}

// What a stage has found so far: the least key that it leaves, and how many keys the list has.
struct Narrowed {
    edge: u32,
    count: u32,
}

// The least key that a stage leaves of those from `edge` on. The first stage finds a digit in the whole row, then makes the
// list.
fn narrow(row: Row, stage: u32, argument: u32, best: u32, given: Narrowed, is_first: bool) -> Narrowed {
    let share = bitcast<f32>(argument);
    var prefix = 0u;
    var count = given.count;
    var wanted = clamp(argument, 1u, p.extent);
    // What leaves all that there is: p from 1 on, k up to the row's length.
    var all_ = (stage == TOP_P && !(share < 1.0)) || (stage == TOP_K && wanted == p.extent);
    if (stage == MIN_P) {
        // Of nothing all is left; of what is no share (negative, infinite, NaN) nothing.
        prefix = select(0xFFFFFFFFu, 0u, share == 0.0);
        if (share > 0.0 && (argument & 0x7F800000u) != 0x7F800000u) {
            // The logarithm is of normal numbers.
            let tiny = share < 1.1754944e-38;
            let normal = select(share, exact(share * 16777216.0), tiny);
            let least = exact(exact(number(best) + log_normal(normal)) - select(0.0, 16.635532, tiny));
            prefix = key_of(bitcast<u32>(least), F32_);
        }
        all_ = true;
    }
    var mass = Mass(0u, 0u);
    var shift = 32u;
    if (is_first) {
        if (!all_) {
            // Counts were made with the maximum; weights need it first.
            if (stage == TOP_P) {
                clear_masses();
                for (var at = 4u * lane; at < p.extent; at += ${4 * LOCAL}u) {
                    let keys = keys_at(row, at);
#for j in 4
                    if (keys[${j}] != 0u) { count_key(TOP_P, keys[${j}], best, shift); }
#end
                }
            }
            prefix = find_digit(stage, shift, max(share, 0.0), &wanted, &mass);
            shift = 24u;
        }
        count = make_list(row, prefix);
    }
    if (!all_) {
        for (; shift > 0u; shift -= 8u) {
            clear(stage);
            let known = select(0xFFFFFFFFu << (shift & 31u), 0u, shift == 32u);
            for (var i = lane; i < count; i += LOCAL) {
                let key = arena[row.list + i];
                if (key >= given.edge && (key & known) == prefix) { count_key(stage, key, best, shift); }
            }
            prefix |= find_digit(stage, shift, max(share, 0.0), &wanted, &mass);
        }
    }
    return Narrowed(max(given.edge, prefix), count);
}

// The listed entry from `edge` on that is largest with its noise, of equal ones the first.
fn drawn(row: Row, number_of_pass: u32, found: Narrowed) -> u32 {
    let number_of_row = number_of_pass * p.pass_rows + p.pass_rows - 1u;
    let at = p.draw_keys_start + 2u * number_of_row;
    let seed = vec2<u32>(inputs[at], inputs[at + 1u]);
    let stream = threefry(seed, vec2<u32>(inputs[p.positions_start + number_of_row], p.draw));
    var best = 0u;
    var place = 0xFFFFFFFFu;
    for (var i = lane; i < found.count; i += LOCAL) {
        let key = arena[row.list + i];
        if (key >= found.edge) {
            let index = arena[row.list + p.extent + i];
            let noisy = key_of(bitcast<u32>(exact(number(key) + gumbel(stream, index))), F32_);
            if (noisy > best || (noisy == best && index < place)) {
                best = noisy;
                place = index;
            }
        }
    }
    let winner = workgroup_max(best);
    let chosen = workgroup_min(select(0xFFFFFFFFu, place, best == winner));
    return select(chosen, 0u, chosen == 0xFFFFFFFFu);
}

#include row_entry
    let number_of_pass = p.first + row;
    let words = (p.extent + 31u) / 32u;
    var whole: Row;
    whole.logits = inputs[p.rows_start + number_of_pass * p.pass_rows + p.pass_rows - 1u] * p.extent;
    whole.mask = p.mask_start + number_of_pass * words;
    whole.temperature = bitcast<f32>(argument_of(p.temperature_start, p.temperature, number_of_pass));
    whole.list = ${LIST}u + row * 2u * p.extent;
    var best = 0u;
    var place = 0xFFFFFFFFu;
#if STAGE_1 == 1
    clear_bins();
#end
    for (var at = 4u * lane; at < p.extent; at += ${4 * LOCAL}u) {
        let keys = keys_at(whole, at);
#for j in 4
#if STAGE_1 == 1
        if (keys[${j}] != 0u) { count_key(TOP_K, keys[${j}], 0u, 32u); }
#end
        if (keys[${j}] > best) {
            best = keys[${j}];
            place = at + ${j}u;
        }
#end
    }
    let most = agreed(workgroup_max(best), lane == 0u);
    var token = 0u;
    if ((word_of(most) & 0x7F800000u) == 0x7F800000u) {
        // An infinite maximum, or nothing left: the first of those.
        token = workgroup_min(select(0xFFFFFFFFu, place, best == most));
    } else {
        var found = Narrowed(0u, 0u);
#for n in (1, 2, 3, 4)
#if (STAGE_1, STAGE_2, STAGE_3, STAGE_4)[n - 1]
        found = narrow(whole, STAGE_${n}, argument_of(p.stage_${n}_start, p.stage_${n}, number_of_pass), most, found, ${"true" if n == 1 else "false"});
#end
#end
        token = drawn(whole, number_of_pass, found);
    }
    if (lane == 0u) { outputs[${TOKENS}u + number_of_pass] = token; }
}
