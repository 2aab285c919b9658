package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones must load in an image that has no zone files

	"github.com/robfig/cron/v3"
)

// ParseSchedule reads five cron fields or a descriptor such as @daily or
// @every 10m. It refuses what the cron package accepts and then does not do:
// a schedule that never comes, and an interval under one second. Next of the
// result reads the fields in the time zone of its argument.
func ParseSchedule(spec string) (_ cron.Schedule, err error) {
	spec = strings.TrimSpace(spec)
	if strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=") {
		return nil, errors.New("a schedule holds no time zone; write the zone as timezone")
	}
	fields := strings.Fields(spec)
	switch {
	case len(fields) == 0:
		return nil, errors.New(`empty schedule; write five fields such as "0 3 * * *", or "@daily"`)
	case strings.HasPrefix(spec, "@"):
		if err := checkDescriptor(fields); err != nil {
			return nil, err
		}
	case len(fields) == 6:
		return nil, fmt.Errorf("%s has six fields; write five fields (minute, hour, day of month, month, day of week): there are no seconds", shown(spec))
	case len(fields) != 5:
		return nil, fmt.Errorf("%s has %d fields; write five fields: minute, hour, day of month, month, day of week", shown(spec), len(fields))
	}
	// The parser has had panics of its own (a zone without a space after it);
	// a wrong schedule must not end the process.
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%s is not a schedule; write five fields such as \"0 3 * * *\"", shown(spec))
		}
	}()
	schedule, err := cron.ParseStandard(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("%s is not a schedule: %v; write five fields such as \"0 3 * * *\"", shown(spec), err)
	}
	// Next looks five years ahead; from 2001 on that includes a 29 February.
	if schedule.Next(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%s never comes; write a day that its month has", shown(spec))
	}
	return schedule, nil
}

func checkDescriptor(fields []string) error {
	known := []string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}
	name := fields[0]
	if name == "@every" && len(fields) == 2 {
		d, err := time.ParseDuration(fields[1])
		if err != nil {
			return fmt.Errorf("@every %s has no interval that can be read; write hours, minutes and seconds such as \"@every 1h30m\"", shown(fields[1]))
		}
		if d < time.Second { // the cron package would silently make it 1s
			return fmt.Errorf("@every %s is under one second; write 1s or more", fields[1])
		}
		return nil
	}
	for _, k := range known {
		if name == k && len(fields) == 1 {
			return nil
		}
	}
	return fmt.Errorf("%s is not a schedule; write %s or \"@every 10m\"", shown(strings.Join(fields, " ")), strings.Join(known, ", "))
}

// Location is the time zone of the job's schedule: UTC if none is named.
func (j Job) Location() (*time.Location, error) {
	if j.Timezone == "Local" { // a different zone on each machine
		return nil, errors.New("\"Local\" is no time zone; write an IANA name such as Asia/Shanghai")
	}
	zone, err := time.LoadLocation(j.Timezone)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %s; write an IANA name such as Asia/Shanghai", shown(j.Timezone))
	}
	return zone, nil
}
