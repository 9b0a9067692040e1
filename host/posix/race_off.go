//go:build !race

package posix

func raceAcquire(*memory) {}
func raceRelease(*memory) {}
