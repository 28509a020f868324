// Each row changed at its indices, in their order. Every entry belongs to one invocation, which alone changes it: the result
// is that of one index after the other, also for sums of floats.
// constants: LOCAL TYPE MODE IS_FIRST
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    indices_start: u32,
    updates_start: u32,
    y_start: u32,
    count: u32, // indices of a row, and which of them this launch takes
    begin: u32,
    end: u32,
    update_entries: u32, // how many entries share an update
    zero: u32,
}
#include rows
#include keys

fn changed(old: u32, update: u32) -> u32 {
#if MODE == 0
    return update;
#elif MODE == 1 and TYPE == 0
    return bitcast<u32>(exact(bitcast<f32>(old) + bitcast<f32>(update)));
#elif MODE == 1
    return old + update;
#elif MODE == 2
    return select(old, update, key_of(update, TYPE) < key_of(old, TYPE));
#else
    return select(old, update, key_of(update, TYPE) > key_of(old, TYPE));
#end
}

#include row_entry
    let base = p.y_start + row * p.extent;
#if IS_FIRST
    for (var i = lane; i < p.extent; i += LOCAL) { ${OUT[0]}[base + i] = ${IN[0]}[p.x_start + row * p.extent + i]; }
#end
    for (var j = p.begin; j < p.end; j++) {
        // A negative index is out of range as well.
        let entry = row * p.count + j;
        let index = ${IN[1]}[p.indices_start + entry];
        if (index < p.extent && index % LOCAL == lane) {
            let update = ${IN[2]}[p.updates_start + entry / p.update_entries];
            ${OUT[0]}[base + index] = changed(${OUT[0]}[base + index], update);
        }
    }
}
