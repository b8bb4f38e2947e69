#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(64) shared_scalar(const int* __restrict__ A_ptr, int* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    __shared__ __align__(16) int first_ptr[1];
    if (tx == 0) {
        first_ptr[0] = A_ptr[0];
    }
    __syncthreads();
    B_ptr[tx] = A_ptr[tx] - first_ptr[0];
}
