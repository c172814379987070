// SPDX-License-Identifier: BSD-3-Clause
// The kernels' PTX as a string: DDP_DOCTOR_PTX is its file.
asm(R"(
.section .rodata
.balign 16
.global ddp_doctor_digest_ptx
ddp_doctor_digest_ptx:
.incbin ")" DDP_DOCTOR_PTX R"("
.byte 0
.previous
)");
