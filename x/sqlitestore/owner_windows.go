package sqlitestore

import (
	"os"

	"golang.org/x/sys/windows"

	"github.com/sema-go/sema/x/internal/filelock"
)

func tryLockDatabase(f *os.File) (bool, error) { return filelock.Try(f) }

func unlockDatabase(f *os.File) { filelock.Unlock(f) }

// hardLinks returns the number of hard links of a file, and its file index.
func hardLinks(f *os.File, _ os.FileInfo) (links, number uint64) {
	var about windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &about) != nil {
		return 1, 0
	}
	return uint64(about.NumberOfLinks), uint64(about.FileIndexHigh)<<32 | uint64(about.FileIndexLow)
}
