package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/everpost/everpost/internal/credential"
)

// Files that standalone writes into its data directory.
const (
	operatorKeyFile = "operator.key"

	// These exist while standalone runs.
	addressFile         = "api.address"
	adminAddressFile    = "admin.address"
	temporalAddressFile = "temporal.address"

	maxKeyFile = 4 << 10
)

// operatorKey reads the key that standalone wrote for its operator. The key is "" when there is
// none. file is where it was looked for, "" when base is not an address of this machine.
//
// The key is only for the installation of the data directory: an error says that base is another
// address of this machine, where somebody else may listen.
func operatorKey(base, dataDir string) (key, file string, err error) {
	u, err := url.Parse(base)
	if err != nil || !onThisMachine(u.Hostname()) {
		return "", "", nil //nolint:nilerr // what is no address is none of this machine
	}
	file = filepath.Join(dataDir, operatorKeyFile)
	if key, err = readLine(file); err != nil {
		return "", file, fmt.Errorf("operator key: %w; give a key with --key or $EVERPOST_KEY", err)
	}
	if key == "" {
		return "", file, nil
	}
	address, err := readLine(filepath.Join(dataDir, addressFile))
	switch {
	case err != nil:
		return "", "", err
	case address == "":
		return "", "", fmt.Errorf(
			"operator key: %s is only sent to the installation of its data directory, which is not running; give a key with --key or $EVERPOST_KEY", file)
	case !reaches(u, address):
		return "", "", fmt.Errorf(
			"operator key: %s is only sent to the installation of its data directory, which listens at http://%s; "+
				"give a key for %s with --key or $EVERPOST_KEY", file, address, base)
	}
	return key, file, nil
}

// runningAt is the address in a file of the data directory of a standalone installation, in a form that can be dialled; none if it does
// not run.
func runningAt(dataDir, file, none string) (string, error) {
	address, err := readLine(filepath.Join(dataDir, file))
	if err != nil || address == "" {
		return none, err
	}
	if _, err = netip.ParseAddrPort(address); err == nil {
		address, err = dialable(address)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", filepath.Join(dataDir, file), err)
	}
	return address, nil
}

// dialable is the address of a listener of this machine in a form that can be dialled.
func dialable(listener string) (string, error) {
	host, port, err := net.SplitHostPort(listener)
	if err != nil {
		return "", fmt.Errorf("read the address of a listener: %w", err)
	}
	switch at, _ := netip.ParseAddr(host); { // a name is no address
	case at == netip.IPv6Unspecified():
		host = netip.IPv6Loopback().String()
	case host == "" || at.IsValid() && at.IsUnspecified():
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// reaches reports whether a URL of this machine leads to a listener's address.
func reaches(u *url.URL, listener string) bool {
	at, err := netip.ParseAddrPort(listener)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "80"
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || net.JoinHostPort(host, port) != netip.AddrPortFrom(ip, at.Port()).String() {
		return false
	}
	return at.Addr().IsUnspecified() || at.Addr().Unmap() == ip.Unmap()
}

// onThisMachine reports whether the host is loopback.
func onThisMachine(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// readLine reads a file of one line; "" if there is none.
func readLine(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return credential.Trim(string(text)), nil
}
