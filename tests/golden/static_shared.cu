#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(128) static_shared(const float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    __shared__ __align__(16) float sm_ptr[128];
    sm_ptr[tx] = A_ptr[tx];
    __syncthreads();
    B_ptr[tx] = sm_ptr[tx] * 2.0f;
}
