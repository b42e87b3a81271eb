// Package programtest finds the programs of others that tests run beside Everpost, such as HAProxy, and installs those that are
// missing.
package programtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// installTimeout bounds the installation of a package, and lockTimeout the wait for other tests that install one.
const (
	installTimeout = 5 * time.Minute
	lockTimeout    = "--option=DPkg::Lock::Timeout=240" // seconds
)

var errNotInstalled = errors.New("is not installed, and cannot be (it is a package of Debian; that needs root)")

// found has a function for each program, which finds it once.
var found sync.Map

// Find returns the path of a program of this machine. As root on Debian it installs the package if there is none. Without the program
// the test is skipped, but not in CI.
func Find(t testing.TB, program, inPackage string) string {
	t.Helper()
	once, _ := found.LoadOrStore(program, sync.OnceValues(func() (string, error) { return find(program, inPackage) }))
	path, err := once.(func() (string, error))() // nothing else is stored
	if err != nil {
		Missing(t, err)
	}
	return path
}

// Missing skips a test that needs what this machine does not have. In CI it fails: nothing is left out there.
func Missing(t testing.TB, what error) {
	t.Helper()
	if os.Getenv("CI") == "" {
		t.Skip(what)
	}
	t.Fatal(what)
}

func find(program, inPackage string) (string, error) {
	if path, err := Look(program); err == nil {
		return path, nil
	}
	if err := install(program, inPackage); err != nil {
		return "", err
	}
	return Look(program)
}

// FindPython is Find for a Python that has a module.
func FindPython(t testing.TB, module, inPackage string) string {
	t.Helper()
	once, _ := found.LoadOrStore("python3 "+module, sync.OnceValues(func() (string, error) { return findPython(module, inPackage) }))
	path, err := once.(func() (string, error))() // nothing else is stored
	if err != nil {
		Missing(t, err)
	}
	return path
}

func findPython(module, inPackage string) (string, error) {
	const ofDebian = "/usr/bin/python3"
	for _, program := range []string{"python3", ofDebian} { // the first one may be another Python than Debian's
		if path, err := Look(program); err == nil && imports(path, module) {
			return path, nil
		}
	}
	if err := install("the module "+module+" of Python", inPackage); err != nil {
		return "", err
	}
	if !imports(ofDebian, module) {
		return "", fmt.Errorf("%s cannot import %s of the package %s", ofDebian, module, inPackage)
	}
	return ofDebian, nil
}

func imports(python, module string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return exec.CommandContext(ctx, python, "-c", "import "+module).Run() == nil //nolint:gosec // fixed arguments
}

// install installs a package, for what is missing without it.
func install(what, inPackage string) error {
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("%s %w", what, errNotInstalled)
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{{"update", "--quiet"}, {"install", "--quiet", "--yes", "--no-install-recommends", inPackage}} {
		command := exec.CommandContext(ctx, "apt-get", append([]string{lockTimeout}, args...)...) //nolint:gosec // fixed arguments
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")        // no service is started
		if out, err := command.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			return fmt.Errorf("install %s: apt-get %s: %w: %s", inPackage, args[0], err, lines[len(lines)-1])
		}
	}
	return nil
}

// Look returns the path of a program of this machine. It looks where Debian has servers, too, which is not in everyone's path.
func Look(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + program)
}
