class Program_weight_tensor_meta_ids:
    name = "ids"
    original_name = "ids"
    shape = [5]
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [0, 3, 6, 3, 1]


class Program_weight_tensor_meta_add_1:
    name = "add_1"
    original_name = "add_1"
    shape = [5, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.2667463421821594
    std = 1.4197676181793213
    data = [-1.186136245727539, -0.7882286310195923, 0.8144903779029846, -2.0206387042999268, 1.3955070972442627, -0.5648419857025146, 1.4064888954162598, 1.39946711063385, -0.7832567691802979, 2.314140558242798, 0.6133830547332764, 0.6847617030143738, -0.9102218747138977, 0.3831922709941864, 0.6039288640022278, -0.4045783281326294, -1.8883600234985352, -1.247265338897705, -2.51112961769104, -2.645629405975342]


class Program_weight_tensor_meta_tanh:
    name = "tanh"
    original_name = "tanh"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.20484128594398499
    std = 0.6036988496780396
    data = [-0.8163238167762756, -0.6232808828353882, 0.06954938918352127, 0.7242035865783691, 0.7219419479370117, -0.8255814909934998, 0.08561743050813675, 0.10222719609737396, -0.3980334401130676, -0.42592906951904297, -0.2960550785064697, -0.19130851328372955, -0.9874113202095032, -0.9620960354804993, 0.7498607039451599]


class Program_weight_tensor_meta_t_2:
    name = "t_2"
    original_name = "t_2"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.09734223037958145
    std = 0.2185981422662735
    data = [0.1881958544254303, 0.03637910634279251, 0.29519742727279663, 0.4074110984802246, 0.3391900360584259, 0.08961442112922668, 0.2571273446083069, 0.17371860146522522, -0.2860015332698822, -0.03413020819425583, -0.18508699536323547, -0.11350834369659424]


class Program_weight_tensor_meta_tangent_output_logits:
    name = "tangent_output_logits"
    original_name = "output.logits"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.1495264619588852
    std = 0.9918786287307739
    data = [-1.523155927658081, -0.24401892721652985, 0.90828537940979, -1.1112072467803955, -0.03811061382293701, -1.4354116916656494, 1.7029260396957397, 0.16346335411071777, 1.1244745254516602, -0.4700661599636078, 0.9684377312660217, -0.42185965180397034, 0.06356173753738403, -1.2913737297058105, -0.6388417482376099]


class Program_weight_tensor_meta_tangent_output_loss:
    name = "tangent_output_loss"
    original_name = "output.loss"
    shape = []
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.14977313578128815
    std = 0.0
    data = [-0.14977313578128815]


class Program_weight_tensor_meta_tensor_constant0:
    name = "tensor_constant0"
    original_name = "backward.tensor_constant0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.1666666269302368
    std = 0.7637625932693481
    data = [0.5, 1.0, 2.0]
