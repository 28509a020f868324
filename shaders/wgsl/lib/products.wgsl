// The sums of products of each side's row groups with M rows of x, block by block of columns: `sum_SIDE_GROUP_TOKEN`, and with
// NORM `square_TOKEN`. Whoever includes it knows where codes (`code_SIDE_GROUP`) and scales begin, each side's `zero`, and by
// X_ROW which rows of x.
#for s in SIDES
#for i in NR
#for m in M
    var sum_${s}_${i}_${m} = 0.0;
#end
#end
#end
#if NORM
#for m in M
    var squares_${m} = vec4<f32>(0.0);
#end
#end
    for (var block = share; block < ${BLOCKS}u; block += KS) {
#for m in M
#for k in 8
        var x_${m}_${k} = x_at(${X_ROW.format(m=m)}, block * 8u + ${k}u);
#if NORM
        squares_${m} += x_${m}_${k} * x_${m}_${k};
#end
#end
#end
#if NORM
#for k in 8
        let norm_${k} = norm[block * 8u + ${k}u] + vec4<f32>(OFFSET);
#for m in M
        x_${m}_${k} *= norm_${k};
#end
#end
#end
#if AFFINE
        // A group of 16 columns is half a block, one of 64 and more holds several.
#for m in M
#for f in FRACTIONS
        var fours_${m}_${f} = x_${m}_${f * (8 // FRACTIONS)};
#for k in 8 // FRACTIONS - 1
        fours_${m}_${f} += x_${m}_${f * (8 // FRACTIONS) + k + 1};
#end
        let total_${m}_${f} = sum_of(fours_${m}_${f});
#end
#for k in 8
        x_${m}_${k} *= place_factors(${k}u);
#end
#end
#for s in SIDES
#for i in NR
        {
#for v in VECTORS
            let q${v} = codes[code_${s}_${i} + (block * ${VECTORS}u + ${v}u) * RI];
#end
            let high = high_of(scale_${s}_${i}, block);
#for f in FRACTIONS
            {
#for m in M
                var product_${m} = 0.0;
#end
#for n in 8 // FRACTIONS
                {
                    let w = part_in_place(q${(f * (8 // FRACTIONS) + n) // PARTS}, high, ${(f * (8 // FRACTIONS) + n) % PARTS}u);
#for m in M
                    product_${m} += product(w, x_${m}_${f * (8 // FRACTIONS) + n});
#end
                }
#end
                let scale = scale_of(scale_${s}_${i}, (block * 32u + ${f * GROUP}u) / ${GROUP}u, zero${s});
#for m in M
                sum_${s}_${i}_${m} += scale.x * product_${m} + scale.y * total_${m}_${f};
#end
            }
#end
        }
#end
#end
#else
#for s in SIDES
#for i in NR
        {
#for m in M
            var product_${m} = 0.0;
#end
#for v in VECTORS
            {
                let q = codes[code_${s}_${i} + (block * ${VECTORS}u + ${v}u) * RI];
#for k in PARTS
                {
                    let w = part(q, vec2<u32>(0u), ${k}u);
#for m in M
                    product_${m} += product(w, x_${m}_${v * PARTS + k});
#end
                }
#end
            }
#end
#for m in M
            sum_${s}_${i}_${m} += product_${m};
#end
        }
#end
#end
#end
    }
#if NORM
#for m in M
    var square_${m} = sum_of(squares_${m});
#end
#end
#if KS > 1
    if (share > 0u) {
#for s in SIDES
#for i in NR
#for m in M
        partial[((share - 1u) * ${SUMS}u + ${(s * NR + i) * M + m}u) * RI + lane] = sum_${s}_${i}_${m};
#end
#end
#end
#if NORM
#for m in M
        partial[((share - 1u) * ${SUMS}u + ${SIDES * NR * M + m}u) * RI + lane] = square_${m};
#end
#end
    }
    workgroupBarrier();
    if (share > 0u) { return; }
    for (var other = 0u; other < ${KS - 1}u; other++) {
#for s in SIDES
#for i in NR
#for m in M
        sum_${s}_${i}_${m} += partial[(other * ${SUMS}u + ${(s * NR + i) * M + m}u) * RI + lane];
#end
#end
#end
#if NORM
#for m in M
        square_${m} += partial[(other * ${SUMS}u + ${SIDES * NR * M + m}u) * RI + lane];
#end
#end
    }
#end
