package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// Measured is one run as the metrics show it.
type Measured struct {
	*jobs.Summary
	Job  string // the value of the label: a job's name, or the command's
	Exit int
}

const lastSuccess = "keyjanitor_last_success_timestamp_seconds"

// WriteMetrics writes the figures of runs in the text format of Prometheus,
// for node_exporter's textfile collector. A run that did not succeed keeps the
// time of its last success from the file that is replaced, if that can be
// read; earlier may be nil. No key's name is ever a label, nor is a prefix.
func WriteMetrics(w io.Writer, runs []Measured, earlier io.Reader) error {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "keyjanitor_" + name, Help: help}, append([]string{"target", "job"}, labels...))
		registry.MustRegister(g)
		return g
	}
	var (
		success  = gauge(strings.TrimPrefix(lastSuccess, "keyjanitor_"), "When the last run that exited 0 ended.")
		ended    = gauge("last_run_timestamp_seconds", "When the last run ended.")
		took     = gauge("run_duration_seconds", "How long the last run took.")
		exit     = gauge("run_exit_code", "The exit code of the last run.")
		complete = gauge("run_complete", "1 if every shard was scanned to its end, else 0.")
		scanned  = gauge("keys_scanned", "Keys that the last run looked at.")
		matched  = gauge("keys_matched", "Keys that met the rule.")
		bytes    = gauge("bytes_matched", "Their size, where it is known; an estimate.")
		typeKeys = gauge("type_keys_matched", "Keys that met the rule, by type.", "type")
		typeSize = gauge("type_bytes_matched", "Their size by type; an estimate.", "type")
		became   = gauge("outcome_keys", "Keys by what became of them in the last run.", "outcome")
		removed  = gauge("elements_removed", "Elements that the last run removed.")
		released = gauge("bytes_released", "Memory that the last run released; an estimate.")
		held     = gauge("held_seconds", "How long the shards of the last run waited for servers in trouble, or for people.")
		signal   = gauge("signal_held_seconds", "The same by shard and signal; several may hold at once.", "shard", "signal")
		total    = gauge("shard_keys", "Keys of a shard when the last run began.", "shard")
		seen     = gauge("shard_keys_scanned", "Keys of a shard that the last run looked at.", "shard")
		found    = gauge("shard_keys_matched", "Keys of a shard that met the rule.", "shard")
		foundSz  = gauge("shard_bytes_matched", "Their size; an estimate.", "shard")
		failed   = gauge("shard_failed", "1 if the shard could not be scanned or acted on, else 0.", "shard")
	)
	before := successes(earlier)
	for _, r := range runs {
		at := func(g *prometheus.GaugeVec, more ...string) prometheus.Gauge {
			labels := append([]string{r.Target, r.Job}, more...)
			for i := range labels {
				labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
			}
			return g.WithLabelValues(labels...)
		}
		if old, known := before[[2]string{r.Target, r.Job}]; known {
			at(success).Set(old)
		}
		if r.Exit == 0 {
			at(success).Set(seconds(r.Finished))
		}
		at(ended).Set(seconds(r.Finished))
		at(took).Set(r.Finished.Sub(r.Started).Seconds())
		at(exit).Set(float64(r.Exit))
		at(complete).Set(truth(r.Complete))
		at(scanned).Set(float64(r.KeysScanned))
		at(matched).Set(float64(r.KeysMatched))
		at(bytes).Set(float64(r.BytesMatched))
		for _, g := range r.Types {
			at(typeKeys, g.Type).Set(float64(g.Keys))
			at(typeSize, g.Type).Set(float64(g.Bytes))
		}
		for _, s := range r.Shards {
			if s.KeysTotal != nil {
				at(total, s.ID).Set(float64(*s.KeysTotal))
			}
			at(seen, s.ID).Set(float64(s.KeysScanned))
			at(found, s.ID).Set(float64(s.KeysMatched))
			at(foundSz, s.ID).Set(float64(s.BytesMatched))
			at(failed, s.ID).Set(truth(s.Error != ""))
		}
		a := r.ActSummary
		if a == nil {
			continue
		}
		outcomes, err := outcomeCounts(a.Outcomes)
		if err != nil {
			return err
		}
		for name, n := range outcomes {
			at(became, name).Set(float64(n))
		}
		at(removed).Set(float64(a.ElementsRemoved))
		at(released).Set(float64(a.BytesReleased))
		sum := 0.0
		for _, h := range a.Holds {
			sum += h.Seconds
			at(signal, h.Shard, h.Signal).Add(h.Seconds)
		}
		at(held).Set(math.Round(1000*sum) / 1000)
	}
	families, err := registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families {
		if _, wrote := expfmt.MetricFamilyToText(w, f); wrote != nil {
			err = errors.Join(err, wrote)
		}
	}
	return err
}

// outcomeCounts is the outcomes by the names they have in JSON.
func outcomeCounts(o jobs.Outcomes) (map[string]int64, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	return counts, json.Unmarshal(raw, &counts)
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// successes is the times of success that a file of metrics has. What can't be
// read has none.
func successes(r io.Reader) map[[2]string]float64 {
	if r == nil {
		return nil
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil || families[lastSuccess] == nil {
		return nil
	}
	times := map[[2]string]float64{}
	for _, m := range families[lastSuccess].GetMetric() {
		times[[2]string{label(m, "target"), label(m, "job")}] = m.GetGauge().GetValue()
	}
	return times
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
