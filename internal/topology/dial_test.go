package topology

import (
	"context"
	"strings"
	"testing"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func TestSplitAddress(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:6379":  "10.0.0.1 6379",
		"[::1]:6379":     "::1 6379",
		"::1:6379":       "::1 6379", // as MOVED writes it
		"redis.svc:6379": "redis.svc 6379",
	} {
		host, port, err := splitAddress(addr)
		if err != nil || host+" "+port != want {
			t.Errorf("%s: %s %s, %v", addr, host, port, err)
		}
	}
	for _, addr := range []string{"", "host", ":6379", "?:6379", "[]:6379", "host:", "host:0"} {
		if host, port, err := splitAddress(addr); err == nil {
			t.Errorf("%q: accepted as %q %q", addr, host, port)
		}
	}
}

func TestDialRefuses(t *testing.T) {
	tlsOn := &config.TLS{}
	for _, tc := range []struct {
		target     config.Target
		addr, want string
	}{
		{config.Target{}, ":6379", "has no host"},
		{config.Target{AddressMap: map[string]string{"10.0.0.1:6379": ":7000"}}, "10.0.0.1:6379", "has no host"},
		{config.Target{TLS: tlsOn}, "/run/redis.sock", "Unix socket"},
	} {
		d, err := newDialer(tc.target, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.dial(context.Background(), "tcp", tc.addr); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("dial %q: %v, want %q", tc.addr, err, tc.want)
		}
	}
}

func TestNewDialerRefuses(t *testing.T) {
	for want, target := range map[string]config.Target{
		"without a password": {Username: "jan"},
		"read CA file":       {TLS: &config.TLS{CAFile: "testdata/absent.pem"}},
		"no certificate":     {TLS: &config.TLS{CAFile: "dial_test.go"}},
		"client certificate": {TLS: &config.TLS{CertFile: "testdata/absent.pem"}},
	} {
		if _, err := newDialer(target, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
