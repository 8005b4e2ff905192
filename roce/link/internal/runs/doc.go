// Package runs has what several links do with runs: check a run to send ([Refuse]), trim a received run ([Trim]), and
// queue copies of runs in bounded memory ([Queue]).
package runs
