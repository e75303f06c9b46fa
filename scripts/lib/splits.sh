# shellcheck shell=bash
# splits.sh: which splits of a batch are tried against each other: all, some at random, or one by name.
# Sourced by exact.sh. Everything here appends to the array $splits.
#
# A split is one word, legs with commas between:
# RANKS:MICRO:THREADS:ZERO:BUCKET_MB:PACK:RECOMPUTE:SHARE:GRADIENTS@LAST_STEP. ZERO is 0 to 3; SHARE is
# dist.node_ranks: how many ranks share memory, 0 all, 1 nobody; GRADIENTS is memory.gradients, which is auto
# below ZeRO 2. A leg continues from the checkpoint of the one before; the last ends at $steps.
#
# shellcheck disable=SC2154 # steps, sequences, usable: the sourcing script's

buckets=(25 0.03)
packs=(true false)
recomputes=(none selective sqrt block)
shares=(0 1 2)
gradients=(auto whole pieces)

# sums ZERO TURN: the gradients of a split.
sums() { (($1 < 2)) && echo auto || echo "${gradients[$2 % 3]}"; }

# Every ranks, micro and ZeRO; these meet threads, bucket sizes, packing, recomputation, sharing and kinds of
# gradients in turn. Then, from each rank count, two runs that stop twice and go on with other counts.
whole_matrix() {
    local -a ranks micro
    local r m threads zero i=0 turn first leg way split
    read -r -a ranks <<<"$usable"
    for r in "${ranks[@]}"; do
        for m in $(divisors $((sequences / r))); do
            for zero in 1 0 3 2; do
                turn=$((i + i / 4)) threads=$((1 + (i + i / 4) / 2 % 2))
                split=$r:$m:$threads:$zero:${buckets[(turn / 2 + i / 8) % 2]}:${packs[turn % 2]}
                split+=:${recomputes[(turn + i / 8) % 4]}:${shares[(i + i / 12) % 3]}
                splits+=("$split:$(sums $zero $((i / 4 + i)))@$steps")
                i=$((i + 1))
            done
        done
    done
    ((${#ranks[@]} > 1 && steps >= 3)) || return 0
    for way in 1 $((${#ranks[@]} - 1)); do
        for first in "${!ranks[@]}"; do
            split=
            for leg in 0 1 2; do
                r=${ranks[(first + leg * way) % ${#ranks[@]}]}
                mapfile -t micro < <(divisors $((sequences / r)))
                split+=,$r:${micro[(first + leg) % ${#micro[@]}]}:$((1 + (first + leg) % 2))
                zero=$(((first + way + leg * 3) % 4))
                split+=:$zero:${buckets[leg % 2]}:${packs[(first + leg) % 2]}
                split+=:${recomputes[(first + leg) % 4]}:${shares[(first + leg) % 3]}
                split+=:$(sums $zero "$first")@$(((leg + 1) * steps / 3))
            done
            splits+=("${split:1}")
        done
    done
}

# draw N: a number below N into $drawn, the same for a seed in every shell.
draw() {
    drawing=$((drawing * 6364136223846793005 + 1442695040888963407))
    drawn=$(((drawing >> 33 & 0x7fffffff) % $1))
}

# draw_leg LAST_STEP: anything, except the ranks of the leg before it where there is a choice.
draw_leg() {
    local -a micro
    local before=$drawn_ranks leg zero
    while
        draw ${#ranks[@]}
        drawn_ranks=${ranks[drawn]}
        [[ $drawn_ranks == "$before" ]] && ((${#ranks[@]} > 1))
    do :; done
    mapfile -t micro < <(divisors $((sequences / drawn_ranks)))
    draw ${#micro[@]}
    leg=$drawn_ranks:${micro[drawn]}
    draw 2
    leg+=:$((1 + drawn))
    draw 4
    zero=$drawn
    leg+=:$zero
    draw ${#buckets[@]}
    leg+=:${buckets[drawn]}
    draw ${#packs[@]}
    leg+=:${packs[drawn]}
    draw ${#recomputes[@]}
    leg+=:${recomputes[drawn]}
    draw ${#shares[@]}
    leg+=:${shares[drawn]}
    draw ${#gradients[@]}
    split+=,$leg:$(sums $zero "$drawn")@$1
}

# random_splits N SEED: a third goes through, a third stops once, a third twice, after any step.
random_splits() {
    local -a ranks
    local n split drawn drawn_ranks drawing=$((10#$2)) stops stop last
    read -r -a ranks <<<"$usable"
    for ((n = 0; n < $1; n++)); do
        split='' drawn_ranks='' last=0
        draw 3
        for ((stops = drawn < steps ? drawn : steps - 1; stops > 0; stops--)); do
            draw $((steps - stops - last))
            stop=$((last + 1 + drawn))
            draw_leg $stop
            last=$stop
        done
        draw_leg "$steps"
        splits+=("${split:1}")
    done
}

# add_split SPLIT: one that was asked for by name, with what it leaves out.
add_split() {
    local leg ranks micro threads zero bucket pack recompute share sums until last=0 split=
    for leg in ${1//,/ }; do
        until=$steps
        [[ $leg != *@* ]] || until=${leg#*@}
        IFS=: read -r ranks micro threads zero bucket pack recompute share sums <<<"${leg%@*}"
        leg=$ranks:$micro:${threads:-1}:${zero:-1}:${bucket:-${buckets[0]}}:${pack:-true}
        leg+=:${recompute:-none}:${share:-0}:${sums:-auto}@$until
        [[ $leg =~ ^([1-9][0-9]*:){3}[0-3]:[0-9]{1,4}(\.[0-9]{1,3})?:(true|false):(none|selective|sqrt|block):[0-9]{1,4}:(auto|whole|pieces)@[1-9][0-9]*$ ]] ||
            fail 2 "--split $1: $leg is not ranks:micro:threads:zero:bucket_mb:pack:recompute:share:gradients@last_step"
        [[ ${sums:-auto} != pieces || ${zero:-1} == [23] ]] ||
            fail 2 "--split $1: gradients in pieces go with zero 2 or 3"
        ((${threads:-1} <= 1024)) || fail 2 "--split $1: at most 1024 threads"
        awk -v mb="${bucket:-1}" 'BEGIN { exit !(mb >= 0.001 && mb <= 1024) }' ||
            fail 2 "--split $1: buckets of 0.001 to 1024 MB"
        ((sequences % (ranks * micro) == 0)) ||
            fail 2 "--split $1: $ranks ranks of $micro do not divide $sequences sequences"
        ((until > last && until <= steps)) ||
            fail 2 "--split $1: a leg to step $until after step $last, of $steps"
        last=$until
        split+=,$leg
    done
    ((last == steps)) || fail 2 "--split $1: the last leg ends before step $steps"
    splits+=("${split:1}")
}
