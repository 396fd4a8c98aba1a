"""The retrieval engine: units, index, lexical and vector search, fusion, reranking, activation."""
