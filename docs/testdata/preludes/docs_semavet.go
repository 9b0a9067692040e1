package prelude

var s *sema.Semaphore
