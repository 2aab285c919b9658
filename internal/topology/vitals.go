package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/redis/go-redis/v9"
)

// The signals of a server's health, as a configuration names their lines.
const (
	SignalReplicaLag      = "replica_lag"       // seconds since the slowest replica last spoke
	SignalReplicaLagBytes = "replica_lag_bytes" // that the slowest replica is behind
	SignalReplicaLost     = "replica_lost"      // replicas fewer than there were
	SignalReplicaBuffers  = "replica_buffers"   // bytes that wait to be sent to replicas (5.0)
	SignalSnapshot        = "snapshot"          // 1 while BGSAVE or an AOF rewrite goes on
	SignalAOFGrowth       = "aof_growth"        // bytes since the run began, or the last rewrite
	SignalLazyfree        = "lazyfree_pending"  // unlinked keys that are not free yet (4.0)
	SignalPing            = "ping"              // seconds that a PING takes
	SignalOps             = "ops_per_second"    // of all clients
	SignalCPU             = "cpu"               // percent of one core; of the main thread from 6.2 on
	SignalEvictions       = "evictions"         // keys a second
	SignalMemory          = "memory"            // percent of maxmemory
	SignalLoading         = "loading"           // 1 while the server reads its data
	SignalClusterDown     = "cluster_down"      // 1 while the cluster's state is not ok
	SignalRefused         = "refused"           // 1 while a script keeps the server from answering
)

// Vital is one signal at one moment: a number, and what it is in words.
type Vital struct {
	Value float64
	Words string
}

// Sampler reads the vitals of one shard's server. Signals that are changes
// are counted from its first sample.
type Sampler struct {
	shard    *Shard
	before   map[string]string // INFO of the sample before
	at       time.Time
	replicas int   // when the run began; -1: not known yet
	aofBase  int64 // size of the AOF when the run began, or after a rewrite
}

// NewSampler returns a sampler of the shard's server, which is known to have
// had so many replicas when the run began, or -1 to find out.
func NewSampler(s *Shard, replicas int) *Sampler { return &Sampler{shard: s, replicas: replicas} }

// Replicas is how many replicas there were when the run began.
func (m *Sampler) Replicas() int { return m.replicas }

// pings of which the median counts.
const pingsPerSample = 3

// Sample reads the vitals of now. What the server does not tell is absent. A
// server that only says in what state it is (LOADING, BUSY) tells that alone,
// and whole is false. An error means that there is no talking to it.
//
// Sends: three PINGs; INFO, some 6 KB and 100 µs of the server; CLUSTER INFO
// in a cluster.
func (m *Sampler) Sample(ctx context.Context) (out map[string]Vital, whole bool, err error) {
	var took [pingsPerSample]time.Duration
	for i := range took {
		start := time.Now()
		if err := m.shard.client.Ping(ctx).Err(); err != nil && !isReply(err) {
			return nil, false, fmt.Errorf("sample: %w", err)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took[:])
	ping := took[pingsPerSample/2]
	out = map[string]Vital{SignalPing: {ping.Seconds(), fmt.Sprintf("a PING takes %s", ping.Round(100*time.Microsecond))}}

	text, err := m.shard.client.Info(ctx).Result()
	switch {
	case err != nil && !isReply(err):
		return nil, false, fmt.Errorf("sample: %w", err)
	case redis.HasErrorPrefix(err, "LOADING "):
		out[SignalLoading] = Vital{1, "the server is loading its data"}
		return out, false, nil
	case redis.HasErrorPrefix(err, "BUSY "):
		out[SignalRefused] = Vital{1, "the server is busy running a script"}
		return out, false, nil
	case err != nil:
		return out, true, nil
	}
	m.read(parseInfo(text), time.Now(), out)
	out[SignalClusterDown] = Vital{}
	if m.shard.Server.Cluster {
		delete(out, SignalClusterDown) // until it tells
		state, err := m.shard.client.ClusterInfo(ctx).Result()
		switch fields := parseInfo(state); {
		case err != nil && !isReply(err):
			return nil, false, fmt.Errorf("sample: %w", err)
		case fields["cluster_state"] == "ok":
			out[SignalClusterDown] = Vital{}
		case fields["cluster_state"] != "":
			out[SignalClusterDown] = Vital{1, "the state of the cluster is " + fields["cluster_state"]}
		}
	}
	return out, true, nil
}

// read takes the signals out of an INFO reply.
func (m *Sampler) read(info map[string]string, now time.Time, out map[string]Vital) {
	number := func(name string) (float64, bool) {
		n, err := strconv.ParseFloat(strings.TrimSpace(info[name]), 64)
		return n, err == nil
	}
	flag := func(signal, words string, fields ...string) {
		for _, field := range fields {
			n, known := number(field)
			switch _, told := out[signal]; {
			case known && n > 0:
				out[signal] = Vital{1, words}
			case known && !told:
				out[signal] = Vital{}
			}
		}
	}
	flag(SignalSnapshot, "an AOF rewrite is in progress", "aof_rewrite_in_progress")
	flag(SignalSnapshot, "BGSAVE is in progress", "rdb_bgsave_in_progress")
	flag(SignalLoading, "the server is loading its data", "loading")
	if n, known := number("lazyfree_pending_objects"); known {
		out[SignalLazyfree] = Vital{n, humanize.Comma(int64(n)) + " unlinked keys are not free yet"}
	}
	if n, known := number("mem_clients_slaves"); known {
		out[SignalReplicaBuffers] = Vital{n, fmt.Sprintf("%s wait to be sent to replicas", humanize.IBytes(uint64(n)))}
	}
	if n, known := number("instantaneous_ops_per_sec"); known {
		out[SignalOps] = Vital{n, humanize.Comma(int64(n)) + " operations a second"}
	}
	if limit, known := number("maxmemory"); known {
		used, _ := number("used_memory")
		share := 0.0
		if limit > 0 {
			share = 100 * used / limit
		}
		out[SignalMemory] = Vital{share, fmt.Sprintf("%.0f%% of maxmemory are in use", share)}
	}
	m.aof(info, out)
	m.changes(info, now, out)
	m.readReplicas(info, out)
	m.before, m.at = info, now
}

// aof reads how the AOF grows. A rewrite is known by the size that the server
// says it left: of data that grows it leaves a larger file than there was when
// the run began.
func (m *Sampler) aof(info map[string]string, out map[string]Vital) {
	size, err := strconv.ParseInt(info["aof_current_size"], 10, 64)
	switch {
	case info["aof_enabled"] == "0":
		out[SignalAOFGrowth] = Vital{}
		return
	case err != nil:
		return
	}
	if m.before == nil || size < m.aofBase {
		m.aofBase = size
	}
	if left, err := strconv.ParseInt(info["aof_base_size"], 10, 64); err == nil && m.before != nil &&
		info["aof_base_size"] != m.before["aof_base_size"] {
		m.aofBase = min(left, size)
	}
	grown := size - m.aofBase
	out[SignalAOFGrowth] = Vital{float64(grown), fmt.Sprintf("the AOF has grown by %s", humanize.IBytes(uint64(grown)))}
}

// changes reads what is a rate.
func (m *Sampler) changes(info map[string]string, now time.Time, out map[string]Vital) {
	passed := now.Sub(m.at).Seconds()
	rate := func(fields ...string) (perSecond float64, known bool) {
		for _, f := range fields {
			is, err1 := strconv.ParseFloat(info[f], 64)
			was, err2 := strconv.ParseFloat(m.before[f], 64)
			if err1 != nil || m.before != nil && err2 != nil {
				return 0, false
			}
			if m.before != nil && passed > 0 {
				perSecond += max(0, is-was) / passed
			}
		}
		return perSecond, true
	}
	if n, known := rate("evicted_keys"); known {
		out[SignalEvictions] = Vital{n, humanize.Comma(int64(n)) + " keys a second are evicted"}
	}
	cpu, known := rate("used_cpu_sys_main_thread", "used_cpu_user_main_thread")
	if !known {
		cpu, known = rate("used_cpu_sys", "used_cpu_user")
	}
	if known {
		out[SignalCPU] = Vital{100 * cpu, fmt.Sprintf("the server uses %.0f%% of a core", 100*cpu)}
	}
}

// readReplicas reads how the replicas do. Without any nothing is behind.
func (m *Sampler) readReplicas(info map[string]string, out map[string]Vital) {
	count, err := strconv.Atoi(info["connected_slaves"])
	if err != nil {
		return
	}
	out[SignalReplicaLag], out[SignalReplicaLagBytes] = Vital{}, Vital{}
	online := 0
	offset, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	for i := range count {
		part := map[string]string{}
		for field := range strings.SplitSeq(info["slave"+strconv.Itoa(i)], ",") {
			name, value, _ := strings.Cut(field, "=")
			part[name] = value
		}
		who := "replica " + net.JoinHostPort(part["ip"], part["port"])
		if part["state"] != "online" {
			continue
		}
		online++
		if lag, err := strconv.ParseFloat(part["lag"], 64); err == nil && lag > out[SignalReplicaLag].Value {
			out[SignalReplicaLag] = Vital{lag, fmt.Sprintf("%s has said nothing for %.0f s", who, lag)}
		}
		if has, err := strconv.ParseInt(part["offset"], 10, 64); err == nil && has > 0 {
			if behind := offset - has; float64(behind) > out[SignalReplicaLagBytes].Value {
				out[SignalReplicaLagBytes] = Vital{float64(behind), fmt.Sprintf("%s is %s behind", who, humanize.IBytes(uint64(behind)))}
			}
		}
	}
	if m.replicas < 0 {
		m.replicas = online
	}
	lost := max(0, m.replicas-online)
	out[SignalReplicaLost] = Vital{float64(lost), fmt.Sprintf("%d of %d replicas are lost", lost, m.replicas)}
}
