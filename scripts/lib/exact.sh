# shellcheck shell=bash
# exact.sh: verify_equivalence.sh --exact: every bit is the same however the batch is split. Sourced by
# that script once it knows the request; ends it.
#
# All runs start alike, and none is trusted to tell about itself alone: digests.jsonl says where a
# difference begins, the checkpoints say that there is none. Splits come from splits.sh.
#
# shellcheck disable=SC2154 # runs, work, steps, sequences, ...: the sourcing script's

valid_windows=7
# shellcheck source=scripts/lib/splits.sh
source "$here/lib/splits.sh"

# --- runs ---------------------------------------------------------------------------------------

# train_split NAME KIND EXACT SPLIT: all legs into $runs/NAME. The schedule must not see where a leg
# ends.
train_split() {
    local leg ranks micro threads zero bucket pack recompute share sums resume=never
    local -a keys
    read -r -a keys <<<"$(kind_keys "$2")"
    rm -rf "${runs:?}/$1"
    for leg in ${4//,/ }; do
        IFS=: read -r ranks micro threads zero bucket pack recompute share sums <<<"${leg%@*}"
        run "$runs/$1" "$ranks" "${keys[@]}" "run.exact=$3" optim.schedule=constant \
            "batch.micro=$micro" "batch.accumulate=$((sequences / (ranks * micro)))" \
            "run.threads=$threads" "memory.zero=$zero" "dist.bucket_mb=$bucket" \
            "memory.pack_weights=$pack" "memory.recompute=$recompute" "dist.node_ranks=$share" \
            "memory.gradients=$sums" "run.steps=${leg#*@}" "run.resume=$resume" \
            run.digest_every=1 "run.eval_every=$(((steps + 5) / 6))" run.eval_sequences=$valid_windows
        resume=must
    done
    [[ -s $runs/$1/digests.jsonl ]] || fail 1 "the run left no digests.jsonl: $4"
}

# first_difference REFERENCE RUN: "same", or the first step in which anything differs, the first thing
# in it (tensors before losses), how many more there are. The end of a leg is evaluated besides.
first_difference() {
    awk '
        function field(key,    at, rest) {
            at = index($0, "\"" key "\": ")
            rest = at == 0 ? "absent" : substr($0, at + length(key) + 4)
            sub(/[,}].*/, "", rest)
            return rest
        }
        function put(step, name, value) {
            if (file <= 2) {
                if (!(step in number)) number[step] = 0
                key[step, ++number[step]] = name
                want[step, name] = value
                if (step + 0 > last) last = step + 0
            } else {
                if ((step, name) in got) value = "twice"
                else if (!((step, name) in want) && extra == "" && name !~ /\/valid_/) extra = step " " name
                got[step, name] = value
            }
        }
        FNR == 1 { file++ }
        !/^\{"step": / { next }
        { step = field("step") }
        /"tensors": \{/ {
            digest = field("digest")
            n = split(substr($0, index($0, "\"tensors\": {") + 12), part, ", ")
            for (i = 1; i <= n; i++) {
                split(part[i], word, "\"")
                put(step, word[2], word[4])
            }
            put(step, "digest", digest)
            next
        }
        /"grad_norm": / {
            n = split("loss tokens tokens_seen lr grad_norm clipped skipped nonfinite digest", part, " ")
            for (i = 1; i <= n; i++) put(step, "metrics/" part[i], field(part[i]))
        }
        /"valid_loss": / {
            put(step, "metrics/valid_loss", field("valid_loss"))
            put(step, "metrics/valid_tokens", field("valid_tokens"))
        }
        END {
            if (file != 4 || last == 0) { print 0, "metrics.jsonl", 0; exit }
            for (step = 1; step <= last; step++) {
                first = ""
                more = -1
                for (i = 1; i <= number[step]; i++) {
                    name = key[step, i]
                    if (!((step, name) in got) || got[step, name] "" != want[step, name] "") {
                        if (first == "") first = name
                        more++
                    }
                }
                if (first != "") { print step, first, more; exit }
            }
            print extra == "" ? "same" : extra " 0"
        }
    ' "$1/digests.jsonl" "$1/metrics.jsonl" "$2/digests.jsonl" "$2/metrics.jsonl"
}

# compare REFERENCE RUN: into $differs: empty, or first step, first thing, how many more. The files
# have the last word.
compare() {
    local file said
    differs=$(first_difference "$1" "$2")
    [[ $differs == same ]] || return 0
    differs=
    file=$(printf 'step-%08d.h5' "$steps")
    said=$("$tutti" checkpoint diff "$2/$file" "$1/$file" 2>&1) || {
        printf '%s\n' "$said" >&2
        differs="$steps checkpoint 0"
    }
}

# weights_digest RUN STEP
weights_digest() {
    sed -n "s/^{\"step\": $2, \"digest\": \"\([0-9a-f]*\)\".*/\1/p" "$1/digests.jsonl"
}

# --- tables -------------------------------------------------------------------------------------

# What is compared: the reference's steps, targets, clipping.
describe() { # compute, reference
    awk -v compute="$1" -v windows=$valid_windows -v sequences="$sequences" '
        function field(key,    rest) {
            rest = substr($0, index($0, "\"" key "\": ") + length(key) + 4)
            sub(/[,}].*/, "", rest)
            return rest
        }
        /^\{"run": / { dropout = field("dropout"); context = field("context"); isa = field("isa") }
        /"grad_norm": / {
            n = field("tokens") + 0
            if (steps++ == 0 || n < least) least = n
            if (n > most) most = n
            if (field("clipped") == "true") clipped++
        }
        END {
            gsub(/"/, "", isa)
            printf "%s on %s: %d steps of %d sequences of %d tokens, %d to %d of them targets; ",
                compute, isa, steps, sequences, context, least, most
            printf "dropout %s; clipped in %d steps; validation on %d windows\n", dropout, clipped, windows
        }
    ' "$2/metrics.jsonl"
}

# row WORD...: 13 words in columns, then normal mode's four.
row() {
    printf '%5s %5s %10s %7s %4s %9s %5s %9s %5s %9s %7s  %16s  ' "${@:1:12}"
    if (($# == 13)); then
        printf '%s\n' "${13}"
    else
        printf '%-9s | %7s %8s %8s %8s\n' "${@:13}"
    fi
}

# A row a leg; the last has the verdict and what normal mode makes of the split.
print_rows() { # split, run, verdict, normal mode's words
    local leg ranks micro threads zero bucket pack recompute share sums from=1 until
    local -a last
    for leg in ${1//,/ }; do
        IFS=: read -r ranks micro threads zero bucket pack recompute share sums <<<"${leg%@*}"
        until=${leg#*@}
        last=(stopped)
        # shellcheck disable=SC2206 # words
        ((until < steps)) || last=("$3" $4)
        row "$ranks" "$micro" $((sequences / (ranks * micro))) "$threads" "$zero" "$bucket" "$pack" \
            "$recompute" "$share" "$sums" "$from-$until" "$(weights_digest "$2" "$until")" "${last[@]}"
        from=$((until + 1))
    done
}

# normal_part COMPUTE SPLIT: into $part: where normal mode begins to differ for this split, and how far
# apart it ends. Once per choice of ranks and micro-batch sizes, for the rest changes no sum.
normal_part() {
    local key='' leg ranks micro run=$runs/$1-normal loss norm weights differs
    part=
    for leg in ${2//,/ }; do
        IFS=: read -r ranks micro _ <<<"$leg"
        key+=,$ranks:$micro
    done
    [[ -z $no_normal && -z ${seen[$key]:-} ]] || return 0
    seen[$key]=yes
    train_split "$1-normal" "$1" false "$2"
    compare "$run-reference" "$run" 2>/dev/null
    if [[ -z $differs ]]; then
        part='same 0 0 0'
        echo "$part" >>"$work/$1-normal-rows"
        return
    fi
    read -r loss norm < <(compare_metrics "$run-reference" "$run")
    weights=$(compare_weights "$run-reference" "$run")
    printf -v part '@%d %s %s %.1e' "${differs%% *}" "$loss" "$norm" "$weights"
    echo "$part" >>"$work/$1-normal-rows"
}

normal_summary() { # compute
    awk '
        { n++ }
        $1 != "same" { differ++ }
        { for (i = 2; i <= 4; i++) if ($i + 0 > most[i]) most[i] = $i + 0 }
        END {
            printf "normal mode: %d of %d splits differ (after @ the first step that does), by at most ", differ, n
            printf "%.1e of the loss, %.1e of the norm, %.1e of the weights\n", most[2], most[3], most[4]
        }
    ' "$work/$1-normal-rows"
}

# The table of one compute format; counts into $same and $failed, the first failure into $worst_*.
exact_table() {
    local compute=$1 reference=$runs/$1-exact-reference split name verdict part differs step what more
    local -A seen=()
    : >"$work/$compute-normal-rows"
    local -a micro
    mapfile -t micro < <(divisors "$sequences")
    split=1:${micro[0]}:1:1:${buckets[0]}:${packs[0]}:${recomputes[0]}:${shares[0]}:auto@$steps
    train_split "$compute-exact-reference" "$compute" true "$split"
    [[ -n $no_normal ]] || train_split "$compute-normal-reference" "$compute" false "$split"
    seen[,1:${micro[0]}]=reference
    describe "$compute" "$reference"
    # shellcheck disable=SC2046 # words
    row ranks micro accumulate threads zero bucket_mb pack recompute share gradients steps weights exact \
        $([[ $no_normal ]] || echo normal: loss norm weights)
    print_rows "$split" "$reference" reference ''
    for split in "${splits[@]}"; do
        name=$compute-exact-${split//[:,]/-}
        train_split "$name" "$compute" true "$split"
        compare "$reference" "$runs/$name"
        if [[ -z $differs ]]; then
            verdict=same
            same=$((same + 1))
        else
            read -r step what more <<<"$differs"
            verdict="FAIL: step $step, $what"
            ((more == 0)) || verdict+=" and $more more"
            failed=$((failed + 1))
            if [[ -z $worst_step ]] || ((step < worst_step)); then
                worst_step=$step
                worst="$compute: step $step, $what, --split $split"
            fi
        fi
        normal_part "$compute" "$split"
        print_rows "$split" "$runs/$name" "$verdict" "$part"
        [[ -n $keep ]] || rm -rf "${runs:?}/$name" "${runs:?}/$compute-normal"
    done
    [[ -n $no_normal ]] || normal_summary "$compute"
    echo
}

splits=()
if [[ -n $sample ]]; then
    seed=${seed:-$(date +%s)}
    random_splits "$sample" "$seed"
    echo "$sample splits drawn at random: --sample $sample --seed $seed draws them again"
elif ((${#wanted[@]} == 0)); then
    whole_matrix
fi
for split in "${wanted[@]}"; do
    add_split "$split"
done
same=0 failed=0 worst='' worst_step=''
for compute in $computes; do
    exact_table "$compute"
done
if ((failed == 0)); then
    echo "PASS: $same split$( ((same == 1)) || echo s), every bit as in the reference"
    exit 0
fi
echo "FAIL: $failed of $((same + failed)) splits differ, first in $worst"
exit 1
