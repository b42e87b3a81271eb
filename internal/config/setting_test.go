package config_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/config"
)

// Every setting has a description and a place in the documentation, and the defaults are valid.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	all := config.Declared(config.Config{}, config.WebUI{}, config.Standalone{})
	require.Greater(t, len(all), 50)
	for _, s := range all {
		require.Regexp(t, `^EVERPOST_[A-Z_]+$`, s.Variable)
		require.Regexp(t, `^[A-Z].*\.$`, s.Help, s.Variable)
		require.NotEmpty(t, s.Section, s.Variable)
		require.Contains(t, []string{"", "api", "worker"}, s.Role, s.Variable)
	}
	require.Equal(t, all, config.Declared(config.Config{}, config.WebUI{}, config.Standalone{}, config.Config{}), "each variable is listed once")

	unset, flags := parsed()
	require.NoError(t, unset.Config.Validate())
	require.NoError(t, unset.Standalone.Validate())
	known := map[string]bool{}
	for _, flag := range flags {
		known["--"+flag.Name] = true
	}
	for _, s := range config.Declared(unset) {
		require.Contains(t, known, s.Flag)
	}
}

// Each declared range is enforced at both ends.
func TestRanges(t *testing.T) {
	t.Parallel()
	type validator interface{ Validate() error }
	found := 0
	for _, whole := range []func() validator{
		func() validator { c := valid(); return &c },
		func() validator { d, _ := parsed(); return &d.Standalone },
	} {
		of := reflect.TypeOf(whole()).Elem()
		for field := range of.Fields() {
			if field.Tag.Get("range") == "" {
				continue
			}
			found++
			for _, value := range []float64{-1, math.MaxInt32} {
				spoiled := whole()
				into := reflect.ValueOf(spoiled).Elem().FieldByIndex(field.Index)
				switch {
				case into.CanInt() && value > 0 && field.Type == reflect.TypeFor[time.Duration]():
					into.SetInt(math.MaxInt64)
				case into.CanInt():
					into.SetInt(int64(value))
				default:
					into.SetFloat(value)
				}
				err := spoiled.Validate()
				if strings.HasSuffix(field.Tag.Get("range"), " or more") && value > 0 {
					require.NoError(t, err, field.Name)
					continue
				}
				require.ErrorContains(t, err, field.Tag.Get("env")+": must be ")
			}
		}
	}
	require.GreaterOrEqual(t, found, 10)
}
