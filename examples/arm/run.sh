#!/bin/sh
# Build what `lfopt codegen --target neon` wrote into a folder for Arm, and run it by an emulator on random inputs.
set -eu
cd "$1"
name=$(basename ./*.pc .pc)
make --quiet "$name" CC="${CC:-aarch64-linux-gnu-gcc}" CFLAGS=-static
"${EMULATOR:-qemu-aarch64}" "./$name" --list
"${EMULATOR:-qemu-aarch64}" "./$name" --bench 1
