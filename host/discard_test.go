//go:build unix

package host

import (
	"bytes"
	"os"
	"testing"
)

// TestOpen_DiscardsWhatProcessesLeft checks that the only opener finds no places, records and
// owners of processes before it, whether few pages of the file were written or many.
func TestOpen_DiscardsWhatProcessesLeft(t *testing.T) {
	const page = 4096
	for name, step := range map[string]int64{"few pages": 256 * page, "many pages": page} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sem, err := Open("x", 3, Dir(dir))
			if err != nil {
				t.Fatal(err)
			}
			path := sem.file.path
			if err := sem.Close(); err != nil {
				t.Fatal(err)
			}
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			left := bytes.Repeat([]byte{0xff}, page)
			for at := int64(placesAt); at+page <= mapSize; at += step {
				if _, err := file.WriteAt(left, at); err != nil {
					t.Fatal(err)
				}
			}
			if sem, err = Open("x", Existing, Dir(dir)); err != nil {
				t.Fatal(err)
			}
			defer sem.Close()
			after := make([]byte, mapSize-placesAt)
			if _, err := file.ReadAt(after, placesAt); err != nil {
				t.Fatal(err)
			}
			clear(after[ownersAt-placesAt:][:3*ownerSize]) // the slots of this semaphore
			if at := bytes.IndexFunc(after, func(r rune) bool { return r != 0 }); at >= 0 {
				t.Errorf("byte %d of the file is %#x", at+placesAt, after[at])
			}
		})
	}
}
