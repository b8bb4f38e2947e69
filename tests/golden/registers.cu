#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(32) registers(const float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    float r_ptr[4];
    r_ptr[0] = A_ptr[tx * 4];
    r_ptr[1] = A_ptr[tx * 4 + 1];
    r_ptr[2] = A_ptr[tx * 4 + 2];
    r_ptr[3] = A_ptr[tx * 4 + 3];
    #pragma unroll
    for (int k = 0; k < 3; ++k) {
        r_ptr[k + 1] = r_ptr[k + 1] + r_ptr[k];
    }
    B_ptr[tx] = r_ptr[3];
}
