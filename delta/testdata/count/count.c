// A plugin of qemu-user that counts the instructions which a program executes, and prints
// them when it ends. Debian's qemu-user takes plugins, qemu-user-static does not.
//
//	cc -O2 -shared -fPIC -o count.so count.c
//	qemu-arm -plugin ./count.so PROGRAM
//
// What is used of QEMU's interface (version 1) is declared here, because Debian has no
// package with the header.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t, void (*)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, enum qemu_plugin_op, void *, uint64_t);
void qemu_plugin_register_atexit_cb(uint64_t, void (*)(uint64_t, void *), void *);

int qemu_plugin_version = 1;

static uint64_t count;

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
	qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &count, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *unused)
{
	fprintf(stderr, "instructions: %" PRIu64 "\n", count);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
