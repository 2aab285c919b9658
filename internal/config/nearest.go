package config

import "strings"

// nearest returns the candidate that the word is most likely a misspelling
// of, or "". A third of the letters may be wrong, and at least one.
func nearest(word string, candidates []string) string {
	best, found := max(1, len(word)/3), ""
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c); d <= best && (found == "" || d < best) {
			best, found = d, c
		}
	}
	return found
}

// distance counts letters changed, added, left out or swapped with their
// neighbour.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64 // no name of ours is that long
	}
	var d [65][65]int
	for i := range len(a) + 1 {
		d[i][0] = i
	}
	for j := range len(b) + 1 {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
