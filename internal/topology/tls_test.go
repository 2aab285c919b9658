package topology

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

// certificate makes a self-signed certificate for one name and writes it
// where a CAFile can point.
func certificate(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestTLS(t *testing.T) {
	pair, caFile := certificate(t, "redis.example")
	_, otherCA := certificate(t, "redis.example")
	m := miniredis.NewMiniRedis()
	if err := m.StartTLS(&tls.Config{Certificates: []tls.Certificate{pair}}); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	target := config.Target{Name: "t", Addresses: []string{m.Addr()}}

	for _, tc := range []struct {
		name string
		tls  *config.TLS
		want string // of the error; "" for none
	}{
		{"right", &config.TLS{CAFile: caFile, ServerName: "redis.example"}, ""},
		{"the dialled host is not in the certificate", &config.TLS{CAFile: caFile}, "127.0.0.1"},
		{"another authority", &config.TLS{CAFile: otherCA, ServerName: "redis.example"}, "unknown authority"},
		{"no authority", &config.TLS{ServerName: "redis.example"}, "unknown authority"},
		{"plain to a TLS port", nil, "may want TLS"},
	} {
		target.TLS = tc.tls
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		top, err := Open(ctx, target, Options{})
		cancel()
		switch {
		case err == nil && tc.want == "":
			top.Close()
		case err == nil:
			t.Errorf("%s: connected", tc.name)
			top.Close()
		case tc.want == "" || !strings.Contains(err.Error(), tc.want):
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
