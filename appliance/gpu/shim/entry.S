/* dlsym and dlopen, and the way past them. RTLD_NEXT and RTLD_DEFAULT are searched from the caller's place in the order of libraries,
 * which the dynamic linker learns from the return address; so these calls leave by a jump, and the return address stays
 * the caller's own. */
    .text
    .globl dlsym
    .type dlsym, %function
#if defined(__x86_64__)
dlsym:
    .cfi_startproc
    endbr64
    leaq 1(%rdi), %rax
    cmpq $1, %rax
    ja 1f
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call psg_next_dlsym
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
1:
    jmp psg_dlsym
    .cfi_endproc
    .size dlsym, . - dlsym
    .globl dlopen
    .type dlopen, %function
dlopen:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    movl %esi, %edi
    call psg_dlopen_mode
    pushq %rax
    .cfi_adjust_cfa_offset 8
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    call psg_next_dlopen
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%rax
    .cfi_endproc
#elif defined(__aarch64__)
dlsym:
    .cfi_startproc
    hint #34
    add x9, x0, #1
    cmp x9, #1
    b.hi 1f
    stp x0, x1, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    str x30, [sp, #16]
    bl psg_next_dlsym
    mov x16, x0
    ldr x30, [sp, #16]
    ldp x0, x1, [sp], #32
    .cfi_adjust_cfa_offset -32
    br x16
1:
    b psg_dlsym
    .cfi_endproc
    .size dlsym, . - dlsym
    .globl dlopen
    .type dlopen, %function
dlopen:
    .cfi_startproc
    hint #34
    stp x0, x1, [sp, #-32]!
    .cfi_adjust_cfa_offset 32
    str x30, [sp, #16]
    mov w0, w1
    bl psg_dlopen_mode
    str w0, [sp, #8]
    bl psg_next_dlopen
    mov x16, x0
    ldr x30, [sp, #16]
    ldp x0, x1, [sp], #32
    .cfi_adjust_cfa_offset -32
    br x16
    .cfi_endproc
#else
#error "No way past dlsym is written for this machine."
#endif
    .size dlopen, . - dlopen
    .section .note.GNU-stack, "", %progbits
