//go:build linux && (arm64 || riscv64 || loong64)

package sysv

// semidDS is struct semid64_ds of asm-generic, for 64 bits.
type semidDS struct {
	perm  ipcPerm
	otime int64
	ctime int64
	nsems uint64
	_, _  uint64
}
