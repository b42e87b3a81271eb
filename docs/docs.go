// Package docs holds the page of the documentation that an installation serves itself.
package docs

import _ "embed"

// Errors is errors.md: a section for each type of problem.
//
//go:embed errors.md
var Errors string
