// Package runs holds what several links do with runs: check one before it is
// sent ([Refuse]), tidy one that was received ([Trim]), and queue copies of runs
// in bounded memory ([Queue]).
package runs
