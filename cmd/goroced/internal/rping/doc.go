// Package rping is librdmacm's rping: a client and a server connect with rdma_cm
// and exchange text by RDMA READ and RDMA WRITE. Either end may be the C tool on a
// real RNIC or on rdma_rxe.
//
// [Run] plays one end on a given device. A ping goes
//
//	client                                   server
//	SEND  where the text is         ----->
//	                                <-----   RDMA READ of the text
//	                                <-----   SEND  go ahead
//	SEND  where it is to return     ----->
//	                                <-----   RDMA WRITE of the text
//	                                <-----   SEND  go ahead
//
// Messages, text, connection parameters and what is printed on standard output are
// the C tool's (v44). It departs from it where that serves people: the client
// empties the place of the returning text before each ping, so that an old text is
// not taken for the new one; the server has room for every size, whatever its own
// Options.Size; an end that loses its peer too early fails.
//
// Files: rping.go runs, options.go checks arguments, client.go and server.go are
// the two roles, endpoint.go is a connection with its memory, errors.go says what
// failures mean, message.go and text.go know the data.
package rping
