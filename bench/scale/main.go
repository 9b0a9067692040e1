// Command scale simulates the fleet protocol at a size that no test bed has:
// 10,000 instances in three regions that acquire a million permits a second, in
// pooled mode and with a hierarchy of stores. It writes the figures and the
// plots of docs/scale.md.
//
//	go -C bench run ./scale            # write them
//	go -C bench run ./scale -print     # print the figures only
//	go -C bench run ./scale -n 1000    # with fewer instances, for a quick look; prints only
//
// Stores run the real protocol.State, sessions the real protocol.Peer. The same
// seed gives the same output, byte for byte.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	n := flag.Int("n", fullSize, "instances")
	onlyPrint := flag.Bool("print", false, "print the figures, write no file")
	doc := flag.String("doc", "../docs/scale.md", "the file into which the figures are written, between its marks")
	plots := flag.String("plots", "../docs/scale", "the directory of the plots")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	stop, err := startProfile(*profile)
	if err == nil {
		err = scale(*seed, *n, *onlyPrint || *n != fullSize, *doc, *plots, os.Stdout, os.Stderr)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// fullSize is the number of instances of the published figures.
const fullSize = 10_000

func scale(seed uint64, n int, onlyPrint bool, doc, plots string, out, progress io.Writer) error {
	start := time.Now()
	results := runAll(seed, n, func(name string, i, of int) {
		fmt.Fprintf(progress, "[%d/%d] %s (%.0f s)\n", i, of, name, time.Since(start).Seconds())
	})
	text := results.markdown()
	fmt.Fprint(out, text)
	if err := results.violation(); err != nil || onlyPrint {
		return err
	}
	if err := writeBetween(doc, text); err != nil {
		return err
	}
	return writePlots(plots, results.charts())
}

func startProfile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}
