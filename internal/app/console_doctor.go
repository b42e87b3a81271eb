package app

import (
	"context"

	"github.com/everpost/everpost/console"
)

// doctor makes the checks of "everpost doctor" for the console, on this process's own settings.
type doctor struct{ app *App }

// Diagnose implements console.Doctor.
func (d doctor) Diagnose(ctx context.Context) []console.Finding {
	o := d.app.options
	var all []console.Finding
	for _, f := range Diagnose(ctx, Installation{Config: o.Config, DataDir: o.DataDir, Temporal: o.Temporal, Logger: d.app.log}) {
		all = append(all, console.Finding{Check: f.Check, Verdict: string(f.Verdict), Detail: f.Detail, Remedy: f.Remedy})
	}
	return all
}
