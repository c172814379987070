# SPDX-License-Identifier: BSD-3-Clause
# Invalid input: a message that names the problem and what to do, exit 2, no process or file left.
. "$(dirname "$0")/lib.sh"
doctor 2 run "$work/missing.pt"; complained 'missing.pt: no such file'
: >"$work/empty.pt"; doctor 2 run "$work/empty.pt"; complained 'empty.pt: the file is empty'
doctor 2 run "$work"; complained 'is a directory'
echo 'import torch' >"$work/train.txt"; doctor 2 run "$work/train.txt"; complained 'neither a Python program .* nor a TorchScript program'

size=$(stat -c %s "$EXAMPLES/cnn.pt")
for i in $(seq 20); do
  head -c $((size * i / 21)) "$EXAMPLES/cnn.pt" >"$work/cut.pt"
  doctor 2 run "$work/cut.pt" --strategies ddp; complained 'cut.pt: is damaged or not a TorchScript program'
done

"$python" -c 'import pickle, sys; pickle.dump({"a": 1}, open(sys.argv[1], "wb"))' "$work/pickle.pt"
doctor 2 run "$work/pickle.pt"; complained 'pickle.pt: a Python pickle'
doctor 2 run "$FIXTURES/tensors.pt"; complained 'tensors.pt: holds tensors \(torch.save\), not a TorchScript program'
doctor 2 run "$EXAMPLES/orphan.pt" --optimizer lion; complained 'optimizer'
doctor 2 run "$EXAMPLES/orphan.pt" --strategies warp; complained 'warp is not a strategy'
doctor 2 run "$EXAMPLES/orphan.pt" --select DDP999; complained 'DDP999 is not a rule'
DDP_DOCTOR_EVERY=often doctor 2 run "$EXAMPLES/orphan.pt"; complained 'often.*the environment variable DDP_DOCTOR_EVERY'
DDP_DOCTOR_EVERY=often doctor 2 run "$EXAMPLES/orphan.pt" --every 0; complained '--every 0 is not a number from 1 to 1000000$'
doctor 2 run; complained 'program is required'
doctor 2 cure; complained 'cure is not a command; there are run, check, bisect, compare, parity, report'
doctor 2 run "$FIXTURES/bare.pt"; complained 'forward needs 1 input\(s\), 0 given.*--input float32\[8,32\]'
doctor 2 run "$FIXTURES/bare.pt" --input 'float33[8,32]'; complained 'float33 is not a dtype; choose one of float32'
doctor 2 run "$FIXTURES/bare.pt" --input 'float32(8,32)'; complained 'not of the form'
doctor 2 run "$FIXTURES/bare.pt" --input 'int64[8,32]'; complained 'forward\(\) failed on its own.*--input int64\[8,32\]'
doctor 2 run "$FIXTURES/bare.pt" --input 'float32[8,31]'; complained 'forward\(\) failed on its own'
doctor 0 run "$FIXTURES/bare.pt" --input 'float32[8,32]' --strategies ddp; printed 'mean of squares over'
doctor 2 run "$FIXTURES/vector_loss.pt"; complained 'the loss has shape \[8\], not a single value'
doctor 2 run "$FIXTURES/all_frozen.pt"; complained 'no parameter requires a gradient'

mkdir "$work/full"; : >"$work/full/file"
doctor 2 run "$EXAMPLES/orphan.pt" --out "$work/full"; complained 'is not empty'
doctor 2 run "$EXAMPLES/orphan.pt" --out "$work/full/file"; complained 'is a file'
doctor 2 run "$EXAMPLES/orphan.pt" --out /proc/nowhere; complained 'cannot be written'
doctor 2 report "$work/full"; complained 'contains no run'
doctor 2 report "$work/nowhere"; complained 'no such folder'
doctor 2 explain DDP999; complained 'DDP999 is not a rule'
doctor 2 demo unheard_of; complained 'there is no demo unheard_of'
