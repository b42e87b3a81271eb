package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/everpost/everpost/console"
)

// portalLook reads the files that say how the portal looks. An error names the setting.
func portalLook(o Options) (console.PortalLook, error) {
	c := o.Config.Portal
	look := console.PortalLook{Name: c.PortalName, Color: c.PortalColor}
	if !o.API || o.Config.ConsoleSwitch == "off" {
		return look, nil
	}
	for _, f := range []struct {
		setting, path string
		limit         int
		into          *[]byte
		check         func() error
	}{
		{"EVERPOST_PORTAL_LOGO", c.PortalLogo, console.MaxImage, &look.Logo, func() error { return console.CheckImage(look.Logo) }},
		{"EVERPOST_PORTAL_LOGO_DARK", c.PortalLogoDark, console.MaxImage, &look.LogoDark, func() error { return console.CheckImage(look.LogoDark) }},
		{"EVERPOST_PORTAL_FAVICON", c.PortalFavicon, console.MaxImage, &look.Favicon, func() error { return console.CheckImage(look.Favicon) }},
		{"EVERPOST_PORTAL_FONT", c.PortalFont, console.MaxFont, &look.Font, func() error { return console.CheckFont(look.Font) }},
	} {
		if f.path == "" {
			continue
		}
		var err error
		if *f.into, err = readUpTo(f.path, f.limit); err == nil {
			err = f.check()
		}
		if err != nil {
			return look, fmt.Errorf("%s: %w", f.setting, err)
		}
	}
	var err error
	if look.Catalogues, err = readCatalogues(c.PortalCatalogues); err == nil {
		err = console.CheckCatalogues(look.Catalogues)
	}
	if err != nil {
		return look, fmt.Errorf("EVERPOST_PORTAL_CATALOGUES: %w", err)
	}
	for language := range look.Catalogues {
		o.Logger.Info("the portal has texts that Everpost has not reviewed", slog.String("language", language))
	}
	return look, nil
}

// readUpTo reads a file of a bounded size.
func readUpTo(path string, limit int) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator's setting
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	content, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(content) > limit {
		return nil, fmt.Errorf("%s has more than %d KiB", path, limit>>10)
	}
	if len(content) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return content, nil
}

// readCatalogues reads the files <language>.json of a directory, by language; none without a directory.
func readCatalogues(dir string) (map[string][]byte, error) {
	all := map[string][]byte{}
	if dir == "" {
		return all, nil
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	if len(paths) == 0 {
		return nil, errors.New(dir + " has no file such as fr.json")
	}
	if len(paths) > console.MaxCatalogues {
		return nil, fmt.Errorf("%s has more than %d files", dir, console.MaxCatalogues)
	}
	for _, path := range paths {
		content, err := readUpTo(path, console.MaxCatalogue)
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = content
	}
	return all, nil
}
