package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/alecthomas/kong"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

// The exit codes of every command, documented for scripts in docs/cli.md.
const (
	exitDone        = 0
	exitFailed      = 1 // not done, or without the expected result
	exitUsage       = 2 // the command line or a setting is invalid; nothing was done
	exitNotFound    = 3 // no such tenant, endpoint, delivery, …
	exitRefused     = 4 // the API or the database rejects it: key, field or state
	exitUnreachable = 5 // no response, or a temporary error: the command may succeed later
)

// usageError is an error in the command line or in a setting.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

// Usage marks an error as one in the settings, for the exit code.
func Usage(err error) error { return usageError{err} }

// usage returns a usageError with the text.
func usage(text string) error { return usageError{errors.New(text)} }

// usagef returns a usageError with the formatted text.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode returns the exit code for the error of a command. Joined errors have the code
// that all of them share, else exitFailed.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		codes := map[int]bool{}
		code := exitFailed
		for _, one := range several.Unwrap() {
			code = exitCode(one)
			codes[code] = true
		}
		if len(codes) > 1 {
			return exitFailed
		}
		return code
	}
	if code, ok := ownCode(err); ok {
		return code
	}
	if inner := errors.Unwrap(err); inner != nil {
		return exitCode(inner)
	}
	return exitFailed
}

// ownCode returns the code of the error itself, not of the errors that it wraps.
func ownCode(err error) (code int, ok bool) {
	switch e := err.(type) { //nolint:errorlint // exitCode unwraps
	case usageError, *kong.ParseError:
		return exitUsage, true
	case *apiError:
		return e.exitCode(), true
	case *client.NoResponseError, *net.OpError:
		return exitUnreachable, true
	case *webhook.Error:
		return codeOfDomain(e.Code), true
	}
	return 0, false
}

// exitCode is the exit code for an error response.
func (r *apiError) exitCode() int {
	switch {
	case r.status == http.StatusNotFound:
		return exitNotFound
	case r.temporary():
		return exitUnreachable
	}
	return exitRefused
}

// codeOfDomain is the exit code for an error of a command that uses the database directly.
func codeOfDomain(code webhook.Code) int {
	switch code {
	case webhook.CodeNotFound:
		return exitNotFound
	case webhook.CodeUnavailable, webhook.CodeRateLimited:
		return exitUnreachable
	case webhook.CodeInvalid, webhook.CodeUnauthenticated, webhook.CodeForbidden, webhook.CodeConflict, webhook.CodeRemoved,
		webhook.CodeQuota, webhook.CodeTooLarge, webhook.CodeTooManyDeliveries, webhook.CodeMismatch, webhook.CodePayloadInvalid, webhook.CodeChanged:
		return exitRefused
	case webhook.CodeInternal:
	}
	return exitFailed
}
