package topology

import (
	"testing"
	"time"
)

// vitalsOf reads one signal from INFO replies that follow each other by a
// second; a signal that is not told is -1.
func vitalsOf(m *Sampler, signal string, replies ...string) (values []float64, words []string) {
	now := time.Now()
	for _, text := range replies {
		now = now.Add(time.Second)
		out := map[string]Vital{}
		m.read(parseInfo(text), now, out)
		v, told := out[signal]
		if !told {
			v.Value = -1
		}
		values, words = append(values, v.Value), append(words, v.Words)
	}
	return values, words
}

func TestVitals(t *testing.T) {
	for name, tc := range map[string]struct {
		signal  string
		replies []string
		want    []float64
		words   string // of the last
	}{
		"AOF, since the run began": {SignalAOFGrowth,
			[]string{"aof_enabled:1\naof_current_size:5000\naof_base_size:3000\n", "aof_enabled:1\naof_current_size:7048\naof_base_size:3000\n"},
			[]float64{0, 2048}, "the AOF has grown by 2.0 KiB"},
		"AOF, a rewrite leaves less": {SignalAOFGrowth,
			[]string{"aof_enabled:1\naof_current_size:5000\naof_base_size:3000\n", "aof_enabled:1\naof_current_size:4100\naof_base_size:4000\n",
				"aof_enabled:1\naof_current_size:5100\naof_base_size:4000\n"},
			[]float64{0, 100, 1100}, ""},
		"AOF, a rewrite leaves more": {SignalAOFGrowth,
			[]string{"aof_enabled:1\naof_current_size:5000\naof_base_size:5000\n", "aof_enabled:1\naof_current_size:9000\naof_base_size:5000\n",
				"aof_enabled:1\naof_current_size:8100\naof_base_size:8000\n", "aof_enabled:1\naof_current_size:8200\naof_base_size:8000\n"},
			[]float64{0, 4000, 100, 200}, ""},
		"AOF, turned on meanwhile": {SignalAOFGrowth,
			[]string{"aof_enabled:0\n", "aof_enabled:1\naof_current_size:9000\naof_base_size:9000\n", "aof_enabled:1\naof_current_size:9010\naof_base_size:9000\n"},
			[]float64{0, 0, 10}, ""},
		"AOF, not told": {SignalAOFGrowth, []string{"# Persistence\n"}, []float64{-1}, ""},
		// From 7.0 on this is what the replicas' shared buffer has beyond the backlog.
		"replica buffers": {SignalReplicaBuffers, []string{"mem_clients_slaves:0\n", "mem_clients_slaves:3145728\nmem_total_replication_buffers:4194304\n"},
			[]float64{0, 3 << 20}, "3.0 MiB wait to be sent to replicas"},
		"replicas, fewer": {SignalReplicaLost, []string{
			"connected_slaves:2\nslave0:ip=a,port=1,state=online,offset=9,lag=0\nslave1:ip=b,port=1,state=online,offset=9,lag=0\n",
			"connected_slaves:1\nslave0:ip=a,port=1,state=online,offset=9,lag=0\n"}, []float64{0, 1}, "1 of 2 replicas are lost"},
		"replicas that came later": {SignalReplicaLost, []string{"connected_slaves:0\n",
			"connected_slaves:1\nslave0:ip=a,port=1,state=online,offset=9,lag=0\n", "connected_slaves:0\n"}, []float64{0, 0, 0}, ""},
		"replica buffers, 4.0": {SignalReplicaBuffers, []string{"used_memory:1\n"}, []float64{-1}, ""},
	} {
		got, words := vitalsOf(&Sampler{replicas: -1}, tc.signal, tc.replies...)
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%s: sample %d: %v, want %v", name, i, got, tc.want)
				break
			}
		}
		if last := words[len(words)-1]; tc.words != "" && last != tc.words {
			t.Errorf("%s: %q, want %q", name, last, tc.words)
		}
	}
}
