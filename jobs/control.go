package jobs

import "sync"

// Control is how people steer a run while it goes on. The zero value steers
// nothing. It is safe for concurrent use.
type Control struct {
	mu     sync.Mutex
	paused string
}

// Pause holds the run, for a reason in words, until Resume.
func (c *Control) Pause(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = why
}

// Resume ends a pause.
func (c *Control) Resume() { c.Pause("") }

// Paused is the reason of the pause; "" where there is none.
func (c *Control) Paused() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}
