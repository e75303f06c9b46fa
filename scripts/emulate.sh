#!/usr/bin/env bash
# emulate.sh: runs test programs as compiled on an emulated processor with AVX-512 and BF16.
#
#   scripts/emulate.sh [-t SECONDS] BUILD TEST...
#   scripts/emulate.sh build/debug kernels/test_gemm_isa kernels/test_attention
#
# BUILD         a build folder with tests/TEST in it: programs of one process, without MPI
# -t SECONDS    ends the emulator when it takes longer (default 900)
#
# Bochs starts a Linux kernel with a memory disk that holds the programs, their libraries and a
# shell; the programs run one after another as on any machine, and their output comes back over a
# serial port. A test of kernels walks through every table the processor can have, so it needs no
# telling; TUTTI_ISA and CK_RUN_CASE (a test case of Check), where set, are passed on. A free core
# executes some 50 million instructions a second: this proves what the code computes, never how
# fast. The exit code is 0 when every program ended with 0 and checked something.
#
# Needed, on Debian: bochs bochs-term cpio grub-common grub-pc-bin linux-image-cloud-amd64 (6.1).
# Bochs 3.0 (Debian 13) has AVX512-BF16; 2.7 (Debian 12) has not, and takes CPU=corei7_skylake_x.
# What lies elsewhere is named by
#   BOCHS     the emulator                                    (bochs)
#   BXSHARE   the folder of its BIOS                          (/usr/share/bochs)
#   VGABIOS   the file of its video BIOS                      (BXSHARE/VGABIOS-lgpl-latest)
#   CPU       the processor, of `bochs --help cpu`            (sapphire_rapids)
#   KERNEL    a Linux kernel with a serial console built in   (the newest /boot/vmlinuz-*)
#   GRUB      grub's folder of i386-pc modules                (/usr/lib/grub/i386-pc)
set -euo pipefail

die() {
    printf 'emulate.sh: %s\n' "$*" >&2
    exit 2
}

if [[ ${1-} == -h || ${1-} == --help ]]; then
    sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"
    exit 0
fi
seconds=900
if [[ ${1-} == -t ]]; then
    seconds=${2:?emulate.sh: -t needs seconds}
    shift 2
fi
[[ $# -ge 2 ]] || die 'usage: emulate.sh [-t SECONDS] BUILD TEST...'
build=$1
shift

bochs=${BOCHS:-bochs}
export BXSHARE=${BXSHARE:-/usr/share/bochs}
vgabios=${VGABIOS:-$BXSHARE/VGABIOS-lgpl-latest}
grub=${GRUB:-/usr/lib/grub/i386-pc}
newest=$(printf '%s\n' /boot/vmlinuz-* | sort -V | tail -n 1)
kernel=${KERNEL:-$newest}
for tool in "$bochs" cpio grub-mkimage; do
    command -v -- "$tool" >/dev/null || die "$tool is not installed; see the head of emulate.sh"
done
for file in "$kernel" "$grub/boot.img" "$BXSHARE/BIOS-bochs-latest" "$vgabios"; do
    [[ -r $file ]] || die "$file is not there; see the head of emulate.sh"
done
models=$("$bochs" --help cpu 2>&1) || true
cpu=${CPU:-sapphire_rapids}
grep -q -x "$cpu" <<<"$models" || die "this Bochs has no $cpu; $bochs --help cpu lists what it has"

work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-emulate.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root

# Copies a program, and the libraries it is linked with, to the same place under $root.
take() {
    local file
    for file in "$1" $(ldd "$1" | grep -o '/[^ ]*'); do
        install -D -m 755 "$file" "$root/${2:-$file}"
        set -- "$1"
    done
}

mkdir -p "$root"/{dev,proc,tmp}
take "$(command -v sh)" /bin/sh
take "$(command -v mount)" /bin/mount
for name in "$@"; do
    [[ -x $build/tests/$name ]] || die "$build/tests/$name is not built"
    take "$build/tests/$name" "/tests/$name"
done
# One emulated processor serves all threads: who waits must sleep.
{
    printf '#!/bin/sh\nexport PATH=/bin OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1%s%s\n' \
        "${TUTTI_ISA:+ TUTTI_ISA=$TUTTI_ISA}" "${CK_RUN_CASE:+ CK_RUN_CASE=$CK_RUN_CASE}"
    cat <<'INIT'
mount -t proc proc /proc
mount -t devtmpfs dev /dev
while read -r key _ value; do
    case $key in
    flags) for flag in $value; do case $flag in avx512*) flags="$flags $flag" ;; esac done ;;
    esac
done </proc/cpuinfo
echo "emulated:$flags"
INIT
    for name in "$@"; do
        printf 'echo "== %s"; /tests/%s; echo "== exit code $?"\n' "$name" "$name"
    done
    printf 'echo b >/proc/sysrq-trigger\nwhile :; do read -r _; done\n'
} >"$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/memory"

# Nothing that the tests do not need: interrupts of a plain PC, no mitigations, none of the newer
# features (waiting, memory keys, tiles) with which Bochs 3.0 and Linux do not get on. Bochs' clock
# counts instructions: what is said here of the time stamp is what `ips` says there. A reset, also
# after a panic, ends the emulator.
hz=20000000
options="quiet nokaslr no5lvl nopku mitigations=off acpi=off nolapic idle=halt lsm=yama"
options+=" tsc_early_khz=$((hz / 1000)) split_lock_detect=off reboot=t panic=-1"
options+=" clearcpuid=amx_tile,amx_bf16,amx_int8,waitpkg,pku,ospke,enqcmd,serialize,fsrm,xsaves"
options+=",movdir64b,movdiri,cldemote"

# The disk has no file system: GRUB reads kernel and memory disk by their sectors.
sectors() {
    echo $((($(stat -L -c %s "$1") + 511) / 512))
}
first=2048
then=$((first + $(sectors "$kernel")))
cat >"$work/grub.cfg" <<GRUB
linux (hd0)$first+$(sectors "$kernel") console=ttyS0 $options
initrd (hd0)$then+$(sectors "$work/memory")
boot
GRUB
grub-mkimage -d "$grub" -O i386-pc -p / -c "$work/grub.cfg" -o "$work/core.img" biosdisk linux
cat "$grub/boot.img" "$work/core.img" >"$work/disk"
dd if="$kernel" of="$work/disk" seek=$first conv=notrunc status=none
dd if="$work/memory" of="$work/disk" seek=$then conv=notrunc status=none
truncate -s %516096 "$work/disk" # whole cylinders

cat >"$work/bochsrc" <<BOCHS
display_library: term
config_interface: textconfig
cpu: model=$cpu, count=1, ips=$hz, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=$BXSHARE/BIOS-bochs-latest
vgaromimage: file=$vgabios
ata0-master: type=disk, path=$work/disk, mode=flat
boot: disk
com1: enabled=1, mode=file, dev=$work/serial
log: $work/log
panic: action=fatal
BOCHS
: >"$work/serial"
TERM=vt100 timeout -s KILL "$seconds" "$bochs" -q -f "$work/bochsrc" \
    </dev/null >"$work/screen" 2>&1 || true
tr -d '\r' <"$work/serial" | tee "$work/output"
if ! grep -q '^emulated:' "$work/output"; then
    tail -n 20 "$work/screen" "$work/log" >&2
    die "the kernel did not reach the tests within $seconds s"
fi
[[ $(grep -c -x '== exit code 0' "$work/output") == "$#" ]] && ! grep -q 'Checks: 0,' "$work/output"
