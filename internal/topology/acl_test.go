package topology

import (
	"strings"
	"testing"
)

func TestACLRuleFollowsTheVersion(t *testing.T) {
	for _, tc := range []struct {
		server   Server
		has, not string
	}{
		{Server{Name: "redis", Version: "6.2.14"}, "+memory|usage", "+command|docs"},
		{Server{Name: "redis", Version: "7.0.15"}, "+command|docs", "+client|no-touch"},
		{Server{Name: "valkey", Version: "8.0.1"}, "+client|no-touch", "+unlink"},
	} {
		s := Shard{Server: tc.server}
		rule := s.ACLRule(PurposeScan)
		if !strings.HasPrefix(rule, "~* +ping ") || !strings.Contains(rule, tc.has) || strings.Contains(rule, tc.not) {
			t.Errorf("%v: %s", tc.server, rule)
		}
		if del := s.ACLRule(PurposeDelete); !strings.HasPrefix(del, rule) || !strings.Contains(del, " +unlink ") {
			t.Errorf("%v: delete does not add to scan: %s", tc.server, del)
		}
	}
	for _, s := range []Server{{Name: "redis", Version: "5.0.14"}, {}} {
		if rule := (&Shard{Server: s}).ACLRule(PurposeScan); rule != "" {
			t.Errorf("%v has no users but a rule: %s", s, rule)
		}
	}
	if rule := (&Shard{Server: Server{Name: "redis", Version: "7.0.15"}}).ACLRule("everything"); rule != "" {
		t.Errorf("made up a rule: %s", rule)
	}
}
