package sysv

// semidDS is struct semid64_ds of arch/x86.
type semidDS struct {
	perm  ipcPerm
	otime int64
	_     uint64
	ctime int64
	_     uint64
	nsems uint64
	_, _  uint64
}
