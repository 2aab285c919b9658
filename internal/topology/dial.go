package topology

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// dialer knows how the connections of one target are made. It never changes
// after newDialer.
type dialer struct {
	username, password string
	addressMap         map[string]string
	tls                *tls.Config // nil: plain
	dialTimeout        time.Duration
	readTimeout        time.Duration
}

func newDialer(t config.Target, o Options) (*dialer, error) {
	if t.Username != "" && t.Password == "" {
		// Without a password the client library sends no AUTH at all, and
		// we would work as the default user.
		return nil, fmt.Errorf("user name %q without a password", t.Username)
	}
	d := &dialer{
		username:    t.Username,
		password:    string(t.Password),
		addressMap:  t.AddressMap,
		dialTimeout: o.DialTimeout,
		readTimeout: o.ReadTimeout,
	}
	if t.TLS != nil {
		var err error
		if d.tls, err = loadTLS(*t.TLS); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func loadTLS(t config.TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA file: no certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// dial is what every connection goes through.
func (d *dialer) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if mapped, ok := d.addressMap[addr]; ok {
		addr = mapped
	}
	// Keep-alive notices a peer that vanished between two pages.
	plain := &net.Dialer{Timeout: d.dialTimeout, KeepAlive: time.Minute}
	if isSocket(addr) {
		if d.tls != nil {
			return nil, fmt.Errorf("TLS over the Unix socket %s: servers do not speak it", addr)
		}
		return plain.DialContext(ctx, "unix", addr)
	}
	host, port, err := splitAddress(addr)
	if err != nil {
		return nil, err
	}
	addr = net.JoinHostPort(host, port)
	if d.tls == nil {
		return plain.DialContext(ctx, "tcp", addr)
	}
	// ServerName stays empty unless configured: the handshake then verifies
	// the host that is dialled.
	return (&tls.Dialer{NetDialer: plain, Config: d.tls}).DialContext(ctx, "tcp", addr)
}

// splitAddress cuts at the last colon, for servers write IPv6 addresses
// without brackets. An empty host would be dialled as localhost, which is
// some other server: nodes that do not know their own address announce it.
func splitAddress(addr string) (host, port string, err error) {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return "", "", fmt.Errorf("address %q has no port", addr)
	}
	host, port = strings.Trim(addr[:i], "[]"), addr[i+1:]
	if host == "" || host == "?" {
		return "", "", fmt.Errorf("address %q has no host", addr)
	}
	if port == "" || port == "0" {
		return "", "", fmt.Errorf("address %q has no port", addr)
	}
	return host, port, nil
}

func isSocket(addr string) bool { return strings.Contains(addr, "/") }

// options returns what every client of this target has in common.
//
// MaxRetries -1, because a retry after a timeout runs a write twice: LTRIM
// and ZREMRANGEBYRANK then remove twice what they were told. Protocol 2,
// because reply shapes are then the same on every version. No identity, no
// client name and no maintenance notifications: each is a command that a
// least-privilege user or an old server refuses. No second pool for
// pipelines: a shard's few connections are all it needs.
func (d *dialer) options(addr string, db int) *redis.Options {
	return &redis.Options{
		Network:                  "tcp", // dial decides
		Addr:                     addr,
		Dialer:                   d.dial,
		Username:                 d.username,
		Password:                 d.password,
		DB:                       db,
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              d.dialTimeout,
		ReadTimeout:              d.readTimeout,
		WriteTimeout:             d.readTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 poolSize,
		PipelinePoolSize:         -1,
	}
}

// user returns as whom we log in, for messages.
func (d *dialer) user() string {
	switch {
	case d.username != "":
		return fmt.Sprintf("user %q", d.username)
	case d.password != "":
		return "the default user"
	}
	return "the default user without a password"
}

// quiet keeps the client library from printing failed dials to standard
// error; each of them also comes back as an error.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
