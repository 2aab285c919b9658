package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/keyjanitor/keyjanitor/jobs"
)

func metricsOf(t *testing.T, earlier string, runs ...Measured) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteMetrics(&out, runs, strings.NewReader(earlier)); err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(out.Bytes())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	return out.String()
}

// values is the metrics of a text as Prometheus reads them.
func values(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	all := map[string]float64{}
	for name, f := range families {
		if !strings.HasPrefix(name, "keyjanitor_") || f.GetHelp() == "" || f.GetType().String() != "GAUGE" {
			t.Errorf("%s is a %s: %q", name, f.GetType(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "target", "job", "shard", "type", "outcome", "signal":
				default:
					t.Errorf("%s has a label %s", name, l.GetName())
				}
			}
			all[strings.Join([]string{name, label(m, "job"), label(m, "shard") + label(m, "type") + label(m, "outcome") + label(m, "signal")}, " ")] = m.GetGauge().GetValue()
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	look, act := scan(20), cluster("execute", 20)
	got := values(t, metricsOf(t, "", Measured{look, "scan", 0}, Measured{act, "old-messages", 4}))
	for series, want := range map[string]float64{
		"keyjanitor_last_success_timestamp_seconds scan ":                                            1796007612.345,
		"keyjanitor_last_run_timestamp_seconds scan ":                                                1796007612.345,
		"keyjanitor_run_duration_seconds scan ":                                                      12.345,
		"keyjanitor_run_exit_code scan ":                                                             0,
		"keyjanitor_run_complete scan ":                                                              1,
		"keyjanitor_keys_scanned scan ":                                                              500_004,
		"keyjanitor_keys_matched scan ":                                                              20,
		"keyjanitor_bytes_matched scan ":                                                             float64(look.BytesMatched),
		"keyjanitor_type_keys_matched scan hash":                                                     300_000,
		"keyjanitor_type_bytes_matched scan hash":                                                    300 << 20,
		"keyjanitor_shard_keys scan 127.0.0.1:6379/0":                                                500_004,
		"keyjanitor_shard_failed scan 127.0.0.1:6379/0":                                              0,
		"keyjanitor_run_exit_code old-messages ":                                                     4,
		"keyjanitor_run_complete old-messages ":                                                      0,
		"keyjanitor_outcome_keys old-messages unlinked":                                              5,
		"keyjanitor_outcome_keys old-messages restored":                                              0,
		"keyjanitor_elements_removed old-messages ":                                                  3_500_000,
		"keyjanitor_bytes_released old-messages ":                                                    187 << 20,
		"keyjanitor_held_seconds old-messages ":                                                      75.5,
		"keyjanitor_signal_held_seconds old-messages 10.0.0.1:6379replica_lag":                       75.5,
		"keyjanitor_shard_failed old-messages redis-2.redis.production.svc.cluster.local:6379":       1,
		"keyjanitor_shard_keys_scanned old-messages redis-2.redis.production.svc.cluster.local:6379": 40_000,
	} {
		if v, there := got[series]; !there || v != want {
			t.Errorf("%s is %v (%v), want %v", series, v, there, want)
		}
	}
	for _, absent := range []string{
		"keyjanitor_last_success_timestamp_seconds old-messages ", // it never was
		"keyjanitor_elements_removed scan ", "keyjanitor_outcome_keys scan unlinked",
	} {
		if v, there := got[absent]; there {
			t.Errorf("%s is %v", absent, v)
		}
	}
}

// The time of the last success outlives the runs that fail after it.
func TestMetricsRememberSuccess(t *testing.T) {
	good, bad := scan(1), scan(1)
	bad.Finished = bad.Finished.Add(24 * time.Hour)
	const series = "keyjanitor_last_success_timestamp_seconds scan "
	text := metricsOf(t, "no metrics {", Measured{good, "scan", 0})
	for range 3 {
		text = metricsOf(t, text, Measured{bad, "scan", 3})
		if got := values(t, text); got[series] != seconds(good.Finished) || got["keyjanitor_run_exit_code scan "] != 3 {
			t.Fatalf("after a failure: %v", got)
		}
	}
	if got := values(t, metricsOf(t, text, Measured{bad, "scan", 0})); got[series] != seconds(bad.Finished) {
		t.Errorf("after the next success: %v", got[series])
	}
	if got := values(t, metricsOf(t, text, Measured{bad, "clean", 3})); len(got) == 0 || got[series] != 0 {
		t.Error("another job's success is kept")
	}
}

// No name of a key gets out, and what may be any text breaks nothing.
func TestMetricsOfHostileText(t *testing.T) {
	s := spoiled(40)
	for i := range s.Shards {
		s.Shards[i].ID += "\xff\"\n\\"
	}
	s.Findings[0].Name, s.Prefixes[0].Prefix = "secret:name", "secret:prefix"
	text := metricsOf(t, "", Measured{s, "job\xff\"\n", 1})
	values(t, text)
	if strings.Contains(text, "secret") {
		t.Error("a key or a prefix is in the metrics")
	}
	if err := WriteMetrics(broken{}, []Measured{{&jobs.Summary{}, "x", 0}}, nil); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a full disk: %v", err)
	}
}
