package client

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	operatorKeyFile = "operator.key" // written by standalone into its data directory
	maxKeyFile      = 4 << 10
)

// OperatorKey reads the key that standalone wrote for its operator. The key is "" when there is
// none. file is where it was looked for, "" when base is not an address of this machine: the key
// is never sent anywhere else, because a mistyped address would get it.
func OperatorKey(base, dataDir string) (key, file string, err error) {
	u, err := url.Parse(base)
	if err != nil || !onThisMachine(u.Hostname()) {
		return "", "", nil //nolint:nilerr // what is no address is none of this machine
	}
	file = filepath.Join(dataDir, operatorKeyFile)
	key, err = readKey(file)
	return key, file, err
}

// onThisMachine reports whether the host is loopback.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

func readKey(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("operator key: %w; give a key with --key or $EVERPOST_KEY", err)
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("operator key: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
