// Package rping is librdmacm's rping: a client and a server connect with rdma_cm
// and exchange text by RDMA READ and RDMA WRITE. Either end may be the C tool on a
// real RNIC or on rdma_rxe.
//
// [Run] runs one end on a given device. A ping is
//
//	client                                   server
//	SEND  where the text is         ----->
//	                                <-----   RDMA READ of the text
//	                                <-----   SEND  go ahead
//	SEND  where it is to return     ----->
//	                                <-----   RDMA WRITE of the text
//	                                <-----   SEND  go ahead
//
// Messages, text, connection parameters and standard output are those of the C tool (v44), with these exceptions: the
// client clears the memory of the returning text before each ping, so that an old text is not taken for a new one; the
// server accepts every size, whatever its own Options.Size; an end that loses its peer too early fails.
//
// Files: rping.go runs the program, options.go checks arguments, client.go and server.go are the two roles, endpoint.go
// is a connection with its memory, errors.go explains failures, message.go and text.go have the data.
package rping
