package config

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
)

func (d *decoder) targets(n *node, path string) map[string]Target {
	const example = `targets: {NAME: {addresses: ["HOST:PORT"]}}`
	targets := map[string]Target{}
	if !d.enter(n, path) {
		return targets
	}
	if n.kind != isMap {
		d.wrongKind(n, path, string(isMap), example)
		return targets
	}
	d.spoiled[path] = n.incomplete
	for _, f := range n.fields {
		at := joinPath(path, f.key)
		if _, ok := targets[f.key]; ok {
			d.problem(f.place, at, "a second target of that name; delete one")
			continue
		}
		t := d.target(f.value, at)
		t.Name = f.key
		targets[f.key] = t
		d.places[at] = f.place
	}
	return targets
}

func (d *decoder) target(n *node, path string) Target {
	t := Target{Mode: ModeAuto}
	var password, file string
	d.mapping(n, path, `{addresses: ["HOST:PORT"]}`, []string{"master_name", "sentinels"},
		key{"addresses", func(n *node, path string) {
			d.each(n, path, `addresses: ["HOST:PORT"]`, func(n *node, path string) {
				address, ok := d.connectionText(n, path)
				if !ok {
					address = unreadable
				}
				t.Addresses = append(t.Addresses, address)
			})
		}},
		key{"mode", func(n *node, path string) {
			mode := d.choice(n, path, []string{"sentinel", "sharded"}, string(ModeAuto), string(ModeStandalone), string(ModeCluster))
			t.Mode = Mode(mode)
		}},
		key{"username", func(n *node, path string) { t.Username, _ = d.connectionText(n, path) }},
		key{"password", func(n *node, path string) { password, _ = d.connectionText(n, path) }},
		key{"password_file", func(n *node, path string) { file, _ = d.connectionText(n, path) }},
		key{"db", func(n *node, path string) {
			d.each(n, path, "db: 0 or db: [0, 1]", func(n *node, path string) {
				t.DBs = append(t.DBs, int(d.integer(n, path, math.MaxInt32)))
			})
		}},
		key{"tls", func(n *node, path string) { t.TLS = d.tls(n, path) }},
		key{"address_map", func(n *node, path string) { t.AddressMap = d.addressMap(n, path) }},
	)
	t.Password = Secret(password)
	if file != "" {
		at := joinPath(path, "password_file")
		secret, err := ReadPasswordFile(file)
		switch {
		case password != "":
			d.problem(d.places[at], at, "password is set too; write one of the two")
		case err != nil:
			d.problem(d.places[at], at, "%v", err)
		}
		t.Password = secret
	}
	return t
}

// tls reads the map that switches TLS on, even when it is empty.
func (d *decoder) tls(n *node, path string) *TLS {
	t := &TLS{}
	d.mapping(n, path, "tls: {} for TLS with the system's certificates", nil,
		key{"ca_file", func(n *node, path string) { t.CAFile, _ = d.connectionText(n, path) }},
		key{"cert_file", func(n *node, path string) { t.CertFile, _ = d.connectionText(n, path) }},
		key{"key_file", func(n *node, path string) { t.KeyFile, _ = d.connectionText(n, path) }},
		key{"server_name", func(n *node, path string) { t.ServerName, _ = d.connectionText(n, path) }},
	)
	return t
}

func (d *decoder) addressMap(n *node, path string) map[string]string {
	if !d.enter(n, path) {
		return nil
	}
	if n.kind != isMap {
		d.wrongKind(n, path, string(isMap), `address_map: {"ANNOUNCED:PORT": "HOST:PORT"}`)
		return nil
	}
	addresses := map[string]string{}
	for _, f := range n.fields {
		from := d.expand(f.key, f.place, path)
		at := joinPath(path, from)
		if _, ok := addresses[from]; ok {
			d.problem(f.place, at, "a second entry for that address; delete one")
			continue
		}
		to, ok := d.connectionText(f.value, at)
		if !ok {
			d.spoiled[at] = true
		}
		addresses[from] = to
	}
	return addresses
}

// connectionText reads a text in which ${NAME} stands for an environment
// variable. Every other $ is itself.
func (d *decoder) connectionText(n *node, path string) (string, bool) {
	s, ok := d.text(n, path)
	if !ok {
		d.spoiled[path] = true
		return "", false
	}
	before := len(d.problems)
	s = d.expand(s, n.place, path)
	if len(d.problems) > before {
		d.spoiled[path] = true
		return "", false
	}
	return s, true
}

var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

func (d *decoder) expand(text string, at place, path string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string {
		name := strings.Trim(reference, "${}")
		value := d.getenv(name)
		if value == "" {
			d.problem(at, path, "the environment variable %s is not set, or empty; set it", name)
		}
		return value
	})
}

// maxPasswordBytes is far more than any password, and keeps a wrong path from
// filling the memory.
const maxPasswordBytes = 64 << 10

// ReadPasswordFile reads a password as it is, less one line break at its end.
// Errors name the file and never show what is in it.
func ReadPasswordFile(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	if !info.Mode().IsRegular() && info.Mode()&os.ModeNamedPipe == 0 {
		return "", fmt.Errorf("read password: %s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPasswordBytes+1))
	if err == nil && len(data) > maxPasswordBytes {
		err = errors.New("more than 64 KiB")
	}
	if err != nil {
		return "", fmt.Errorf("read password from %s: %w", path, err)
	}
	text := string(data)
	if line, ok := strings.CutSuffix(text, "\n"); ok {
		text = strings.TrimSuffix(line, "\r")
	}
	if text == "" {
		return "", fmt.Errorf("read password: %s is empty", path)
	}
	return Secret(text), nil
}
