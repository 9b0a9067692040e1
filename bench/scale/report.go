package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sema-go/sema/bench/plot"
)

const beginMark, endMark = "<!-- scale -->\n", "<!-- end -->"

// writeBetween replaces the text between the marks in a file.
func writeBetween(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("%s: no marks %q … %q", file, strings.TrimSpace(beginMark), endMark)
	}
	return os.WriteFile(file, []byte(before+beginMark+text+endMark+after), 0o644)
}

// markdown returns the figures.
func (r *results) markdown() string {
	var b strings.Builder
	r.writeFull(&b)
	r.writeHolds(&b)
	r.writeQuanta(&b)
	r.writeLoads(&b)
	r.writeFaults(&b)
	return b.String()
}

func (r *results) writeFull(b *strings.Builder) {
	fmt.Fprintf(b, "%d regions, seed %d.\n\n", len(r.full.regions), r.full.p.seed)
	fmt.Fprintf(b, "| instances | %s | %s | %s |\n|---|--:|--:|--:|\n", plot.Count(float64(r.full.p.instances)), plot.Count(float64(r.fewer.p.instances)), plot.Count(float64(r.doubling.p.instances)))
	row := func(name string, value func(w *world) string) {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, value(r.full), value(r.fewer), value(r.doubling))
	}
	row("capacity", func(w *world) string { return plot.Count(float64(w.p.capacity)) })
	row("policy", func(w *world) string { return w.p.policy.String() })
	row("acquires served per second", func(w *world) string { served, _ := w.served(); return plot.Count(w.perSecond(served)) })
	row("over-admissions", func(w *world) string { return fmt.Sprint(w.m.overAdmitted) })
	row("maximum permits in use at a time", func(w *world) string { return plot.Count(float64(w.m.maxInUse)) })
	row("utilisation", func(w *world) string { return fmt.Sprintf("%.1f %%", 100*w.utilisation()) })
	row("batches per second, global store", func(w *world) string { return plot.Count(w.perSecond(w.global.counts.batches)) })
	for i := range r.full.regions {
		row(fmt.Sprintf("batches per second, store of region %d", i+1), func(w *world) string {
			return plot.Count(w.perSecond(w.regions[i].store.counts.batches))
		})
	}
	row("batches per acquire", func(w *world) string { return fmt.Sprintf("%.3f", w.batchesPerAcquire()) })
	row("notifications per second, all stores", func(w *world) string {
		return plot.Count(w.perSecond(w.global.counts.notifications + w.regional(notifications)))
	})
	row("wait for a permit, p50", func(w *world) string { return w.m.waits.millis(0.5) })
	row("wait for a permit, p99", func(w *world) string { return w.m.waits.millis(0.99) })
	row("callers that gave up after 1 s", func(w *world) string { return plot.Count(float64(w.m.timedOut)) })
	row("fairness among instances", func(w *world) string { instances, _ := w.fairness(); return fmt.Sprintf("%.4f", instances) })
	row("fairness among regions", func(w *world) string { _, regions := w.fairness(); return fmt.Sprintf("%.4f", regions) })
}

func (r *results) writeHolds(b *strings.Builder) {
	fmt.Fprintf(b, "\nPermits per instance, %d instances:\n\n", r.holds[0][0].p.instances)
	b.WriteString("| held for | in use by an instance | load | batches per acquire | wait p50 | wait p99 |\n|--:|--:|--:|--:|--:|--:|\n")
	for k, load := range r.holdLoads {
		for _, w := range r.holds[k] {
			fmt.Fprintf(b, "| %d ms | %.1f | %.2f | %.3f | %s | %s |\n", w.p.hold/ms, w.p.rate*float64(w.p.hold)/float64(second), load,
				w.batchesPerAcquire(), w.m.waits.millis(0.5), w.m.waits.millis(0.99))
		}
	}
}

func (r *results) writeQuanta(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe quantum, %d instances with a demand of 1.1 times the capacity:\n\n", r.quanta[0].p.instances)
	b.WriteString("| quantum | recall delay in a region, p50 | p99 | among regions, p50 | utilisation | batches per acquire |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, w := range r.quanta {
		delays := w.regionalDelays()
		fmt.Fprintf(b, "| %d ms | %s | %s | %s | %.1f %% | %.3f |\n", w.p.quantum/ms, delays.millis(0.5), delays.millis(0.99), w.global.delays.millis(0.5), 100*w.utilisation(), w.batchesPerAcquire())
	}
}

func (r *results) writeLoads(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe load, %d instances with equal demand:\n\n", r.loads[0].p.instances)
	b.WriteString("| demand / capacity | utilisation | served | fairness among instances | among regions | batches per acquire | wait p99 |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for i, w := range r.loads {
		served, offered := w.served()
		instances, regions := w.fairness()
		fmt.Fprintf(b, "| %.2f | %.1f %% | %.1f %% | %.4f | %.4f | %.3f | %s |\n", loads[i], 100*w.utilisation(),
			min(100, 100*float64(served)/float64(offered)), instances, regions, w.batchesPerAcquire(), w.m.waits.millis(0.99))
	}
}

func (r *results) writeFaults(b *strings.Builder) {
	fmt.Fprintf(b, "\nFaults, %d instances:\n\n", r.peak.p.instances)
	b.WriteString("| | demand peak | partition and crashes |\n|---|--:|--:|\n")
	row := func(name string, value func(w *world) string) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value(r.peak), value(r.partition))
	}
	row("over-admissions", func(w *world) string { return fmt.Sprint(w.m.overAdmitted) })
	row("permits in use when the region's lease ended", func(w *world) string { return fmt.Sprint(w.m.outlived) })
	row("maximum permits in use at a time, of "+plot.Count(float64(r.peak.p.capacity)), func(w *world) string { return plot.Count(float64(w.m.maxInUse)) })
	row("crashed instances", func(w *world) string { return plot.Count(float64(w.m.crashed)) })
	row("lost sessions", func(w *world) string { return plot.Count(float64(w.m.ended)) })
	row("lost permits in use", func(w *world) string { return plot.Count(float64(w.m.lost)) })
	row("recall delay in a region, p99", func(w *world) string { return w.regionalDelays().millis(0.99) })
	row("recall delay among regions, p99", func(w *world) string { return w.global.delays.millis(0.99) })
	row("batches per acquire", func(w *world) string { return fmt.Sprintf("%.3f", w.batchesPerAcquire()) })
}

// batchesPerAcquire returns the batches of all stores together per acquire.
func (w *world) batchesPerAcquire() float64 {
	served, _ := w.served()
	return float64(w.global.counts.batches+w.regional(batches)) / float64(max(1, served))
}

func (w *world) regionalDelays() *histogram {
	all := &histogram{}
	for _, r := range w.regions {
		all.merge(&r.store.delays)
	}
	return all
}

// millis formats a quantile.
func (h *histogram) millis(q float64) string {
	t := h.quantile(q)
	switch {
	case h.n == 0:
		return "no waits"
	case t < 10:
		return fmt.Sprintf("%.1f ms", t)
	}
	return fmt.Sprintf("%.0f ms", t)
}
